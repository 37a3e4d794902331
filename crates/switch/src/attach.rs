//! Making a port from the descriptor that came with an order.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vhost::backend::Backend;
use vhost::fault::Fault;

use crate::control::Counters;
use crate::guard::Limiter;
use crate::limits::{MAX_LEARNT_PER_PORT, MAX_QUEUE_PAIRS};
use crate::port::{Guest, Kind, Port, Teacher};
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
    Ok(Kind::Uplink(Uplink::new(tap)?))
}

/// A port with nothing counted yet.
#[must_use]
pub(crate) fn port(name: String, kind: Kind) -> Port {
    let teacher = match kind {
        Kind::Guest(_) => Teacher::new(MAX_LEARNT_PER_PORT),
        Kind::Uplink(_) => Teacher::new(u32::MAX),
    };
    Port {
        name,
        counters: Counters::default(),
        kind,
        teacher,
        guard: None,
        limits: Limiter::default(),
    }
}
