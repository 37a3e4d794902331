//! The results of requests.

use crate::error::Code;
use crate::ids::Peer;
use crate::memory::Memory;

/// The status of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// How it ended.
    pub code: Code,
    /// The peer: the sender of a received message, the receiver of a sent one, or the peer
    /// connected to. `None` for a receive or connect that ended without one.
    pub peer: Option<Peer>,
    /// The match value: the sender's, for a receive too.
    pub value: u64,
    /// Bytes of the message.
    pub length: u64,
    /// Bytes of it that arrived.
    pub taken: u64,
}

/// A completion: the status of an ended request, and its memory.
#[derive(Debug)]
pub struct Completion {
    /// The status.
    pub status: Status,
    /// The memory passed to `isend` or `irecv`. That of a receive holds the message in its first
    /// [`taken`](Status::taken) bytes.
    pub memory: Memory,
}
