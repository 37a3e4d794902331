//! Making a port from the descriptor that came with an order.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vhost::fault::Fault;

use crate::limits::MAX_QUEUE_PAIRS;
use crate::port::{Backend, Guest, Kind};
use crate::uplink::Uplink;

/// A VM's NIC on a vhost-user socket.
///
/// # Errors
/// The descriptor is no socket.
pub(crate) fn guest(socket: OwnedFd) -> Result<Kind, Errno> {
    let backend = Backend::new(socket, MAX_QUEUE_PAIRS).map_err(|fault| match fault {
        Fault::Host(error) => error,
        _ => Errno::INVAL,
    })?;
    Ok(Kind::Guest(Box::new(Guest::new(backend))))
}

/// An uplink on a tap.
///
/// # Errors
/// The descriptor is no tap.
pub(crate) fn uplink(tap: OwnedFd) -> Result<Kind, Errno> {
    Ok(Kind::Uplink(Box::new(Uplink::new(tap)?)))
}
