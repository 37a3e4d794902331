//! A subscription to the frames of a port.

use std::os::fd::OwnedFd;

use switch::control::PortId;
use switch::limits::MAX_CAPTURES;

/// The supervisor's side of a subscription, kept for the next data plane.
#[derive(Debug)]
pub(in crate::serve) struct Watch {
    pub(super) port: PortId,
    pub(super) number: u32,
    pub(super) bytes: u32,
    pub(super) socket: OwnedFd,
}

/// The subscriber's side.
#[derive(Debug)]
pub(in crate::serve) struct Watched {
    pub(in crate::serve) port: PortId,
    pub(in crate::serve) number: u32,
    /// Receives the data plane's datagrams.
    pub(in crate::serve) socket: OwnedFd,
}

/// Why a port cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(in crate::serve) enum WatchError {
    /// No such port.
    #[error("network {network} has no port {vm}{hint}")]
    NoPort {
        network: String,
        vm: String,
        hint: String,
    },
    /// The port has the greatest number of subscriptions already.
    #[error("{vm} already has {MAX_CAPTURES} captures, which is the maximum; end one of them")]
    TooMany { vm: String },
    /// The daemon is out of descriptors.
    #[error("cannot create a socket for the capture: {0}")]
    Socket(rustix::io::Errno),
}
