//! Starts any of the switches under test.

use std::path::Path;

use vm_harness::error::Result;

use super::ovs::Ovs;
use super::patch::Patch;
use super::peer::{Peer, Shape, Switch};
use super::vicinity::Vicinity;

/// Starts a switch on the switches' CPU with everything it needs inside `folder`; dropping it
/// stops it. `program` is the `vicinity` binary.
pub(super) fn start(
    peer: Peer,
    shape: Shape,
    folder: &Path,
    program: &Path,
) -> Result<Box<dyn Switch>> {
    Ok(match peer {
        Peer::Vicinity => Box::new(Vicinity::start(folder, program, shape.ports)?),
        Peer::OvsDpdk => Box::new(Ovs::start(folder, shape)?),
        Peer::Testpmd => Box::new(Patch::start(folder, shape.ports)?),
    })
}
