//! Connects that are under way.

use std::time::Duration;

use crate::event::Partner as Who;

/// A connect that is not answered.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) who: Who,
    pub(crate) key: u32,
    pub(crate) token: u64,
    pub(crate) number: u8,
    pub(crate) again: Duration,
    pub(crate) since: Duration,
}
