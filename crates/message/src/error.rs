//! The result codes of requests, and the errors of calls.

use std::io;

/// The crate's own code uses this short name.
pub(crate) use MessageError as Error;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The request succeeded.
    Success,
    /// The message was longer than the memory for it; the rest is lost.
    Truncated,
    /// [`cancel`](crate::Endpoint::cancel) ended it.
    Cancelled,
    /// The peer's endpoint was closed, its process ended, or it was disconnected.
    Closed,
    /// The peer's endpoint was closed and opened again since: connect again.
    BadSession,
    /// The peer violated the protocol and was disconnected, or its host does not answer any more.
    Unreachable,
    /// The connection key is not the one the endpoint was opened with.
    BadKey,
    /// No member and no host of this NIC id is known.
    Unknown,
    /// This host has no memory or descriptors left.
    NoResources,
}

/// The error of a call, which had no effect.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// There is no such request, or its result was taken already.
    #[error("there is no such request; the program may have taken its result already")]
    BadRequest,
    /// The peer was never connected, or its entry was reused.
    #[error("the peer does not belong to this endpoint; connect to it first")]
    BadPeer,
    /// A value has bits outside of its mask, so nothing could ever match it.
    #[error("the match value has bits outside of the mask")]
    BadMask,
    /// A mask does not cover the bits of the context id.
    #[error("the mask must cover all bits of the context id")]
    ContextMask,
    /// A context id that does not fit into 64 bits, or is too wide.
    #[error("a context id has at most 16 bits, within the 64 of a match value")]
    BadContext,
    /// More segments than a message may have.
    #[error("a message has at most 256 segments")]
    TooManySegments,
    /// Only receives that match nothing yet can be cancelled.
    #[error("a send cannot be cancelled")]
    CannotCancel,
    /// Another process or endpoint uses this endpoint id.
    #[error("the endpoint id is in use")]
    Busy,
    /// The NIC id is not of this board, and the board has no gateway to others.
    #[error(
        "NIC {0:012x} does not belong to this board, and the board has no gateway to other members"
    )]
    UnknownNic(u64),
    /// This member cannot join; the text gives the reason.
    #[error("cannot join the message plane: {0}")]
    Join(String),
    /// The connection failed.
    #[error("the connection failed: {}", reason(*.0))]
    Connection(Code),
    /// An echoed message differs from the one that was sent.
    #[error("a message returned with other contents than it was sent with")]
    DataMismatch,
    /// The time limit has passed.
    #[error("the peer did not answer in time")]
    Timeout,
    /// The kernel refused a call.
    #[error("the kernel refused a system call: {0}")]
    Kernel(#[from] io::Error),
    /// A window cannot be created or attached.
    #[error("cannot use the peer's window: {0}")]
    Window(#[from] window::WindowError),
}

impl From<rustix::io::Errno> for MessageError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Kernel(error.into())
    }
}

fn reason(code: Code) -> &'static str {
    match code {
        Code::Closed => "the endpoint is not open",
        Code::BadSession => "the endpoint was closed and opened again",
        Code::BadKey => "the endpoint has another key",
        Code::Unknown => "no known member or host has this address",
        Code::NoResources => "the endpoint or this host has too many connections",
        Code::Unreachable => "its host does not answer, or does not support this protocol",
        Code::Cancelled => "the request was cancelled",
        Code::Success | Code::Truncated => "the peer reported no failure",
    }
}
