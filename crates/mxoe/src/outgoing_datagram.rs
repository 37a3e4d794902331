//! A frame that waits to be sent in a datagram.
//!
//! The data of a reply to a pull stays in the buffer of the message until the kernel copies it: another copy in between would take as long as
//! the rest of what this process does for the frame.

use std::net::SocketAddr;

/// A frame that travels in a datagram.
#[derive(Debug)]
pub(crate) struct OutgoingDatagram {
    pub(crate) to: SocketAddr,
    /// The frame, but for the data of a reply.
    pub(crate) head: Vec<u8>,
    pub(crate) data: Option<DataOfReply>,
}

/// Where the data of a reply is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataOfReply {
    pub(crate) endpoint: u8,
    pub(crate) region: u8,
    pub(crate) generation: u8,
    pub(crate) start: u32,
    pub(crate) length: u32,
}
