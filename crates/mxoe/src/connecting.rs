//! Connects that the peers have not answered.

use std::time::Duration;

use crate::event::PartnerId;

/// A connect that the peer has not answered.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) id: PartnerId,
    pub(crate) key: u32,
    pub(crate) token: u64,
    pub(crate) number: u8,
    pub(crate) retry_at: Duration,
    pub(crate) started: Duration,
}
