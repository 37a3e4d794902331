//! A list of FDB entries that the data plane sends page by page.

use switch::control::FdbEntry;
use tokio::sync::oneshot;

use crate::status::FdbEntryStatus;

/// A list that the data plane sends, and the clients that wait for it. Dropping it ends their wait without an answer.
#[derive(Debug, Default)]
pub(in crate::serve) struct FdbList {
    pub(super) waiters: Vec<oneshot::Sender<Vec<FdbEntryStatus>>>,
    pub(super) entries: Vec<FdbEntry>,
    /// The slot at which the page that comes next begins.
    pub(super) from: u32,
}
