//! Creates a port from the descriptor of an order.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vhost::fault::Fault;

use crate::control::UplinkKind;
use crate::limits::MAX_QUEUE_PAIRS;
use crate::port::{Backend, Guest, Kind};
use crate::uplink::Uplink;

/// Creates a VM's NIC on a vhost-user socket.
///
/// # Errors
/// The descriptor is not a socket.
pub(crate) fn guest(socket: OwnedFd) -> Result<Kind, Errno> {
    let backend = Backend::new(socket, MAX_QUEUE_PAIRS).map_err(|fault| match fault {
        Fault::Host(error) => error,
        _ => Errno::INVAL,
    })?;
    Ok(Kind::Guest(Box::new(Guest::new(backend))))
}

/// Creates an uplink on a tap or another interface.
///
/// # Errors
/// The descriptor cannot be made non-blocking.
pub(crate) fn uplink(out: OwnedFd, kind: UplinkKind) -> Result<Kind, Errno> {
    Ok(Kind::Uplink(Box::new(Uplink::new(out, kind)?)))
}
