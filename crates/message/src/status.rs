//! What became of a request.

use crate::error::Code;
use crate::ids::Peer;
use crate::memory::Memory;

/// What a request brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How it ended.
    pub code: Code,
    /// The other side: sender of what was received, receiver of what was sent, or the peer that
    /// was connected to. `None` for a receive or connect that ended without one.
    pub peer: Option<Peer>,
    /// The match value: the sender's, for a receive too.
    pub value: u64,
    /// Bytes of the message.
    pub length: u64,
    /// Bytes of it that arrived.
    pub taken: u64,
}

/// A request that has ended: its status, and the memory that was lent to it.
#[derive(Debug)]
pub struct Completion {
    /// What became of it.
    pub status: Status,
    /// What was given to `isend` or `irecv`. A receive's holds the message in its first
    /// [`taken`](Status::taken) bytes.
    pub memory: Memory,
}
