//! Connects that the peers have not answered.

use std::net::SocketAddr;
use std::time::Duration;

use crate::event::PartnerId;

/// A connect that the peer has not answered.
#[derive(Debug)]
pub(crate) struct Connecting {
    pub(crate) id: PartnerId,
    pub(crate) key: u32,
    pub(crate) token: u64,
    /// The address of the endpoint's program, if this is an introduction.
    pub(crate) program: Option<SocketAddr>,
    pub(crate) number: u8,
    pub(crate) retry_at: Duration,
    pub(crate) started: Duration,
}

/// A probe of a path to a partner.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Probe {
    /// Of the path of large frames.
    LargeFrame,
    /// Of the path of datagrams.
    Datagram,
}
