//! A back-end on the test's own thread.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "tests; every binary uses its own part of this"
)]

use front_end::{Nic, Options, Wire};
use vhost::backend::{Backend, Change};
use vhost::fault::Fault;

/// A front-end's socket and the back-end at its other end.
pub fn connect() -> (Wire, Backend) {
    let (wire, theirs) = Wire::pair();
    (wire, Backend::new(theirs, 1).unwrap())
}

/// Executes every message that has arrived.
pub fn serve(backend: &mut Backend) -> Result<Vec<Change>, Fault> {
    let mut changes = Vec::new();
    while let Some(message) = backend.receive()? {
        changes.push(backend.apply(message)?);
    }
    Ok(changes)
}

/// A NIC whose rings run.
pub fn device(options: Options) -> (Nic, Backend) {
    let (wire, mut backend) = connect();
    let mut nic = Nic::new(wire, options);
    nic.start(|| drop(serve(&mut backend).unwrap()));
    (nic, backend)
}
