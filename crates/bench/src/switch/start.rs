//! Starts any of the switches under test.

use std::path::Path;

use vm_harness::error::Result;

use super::device_under_test::{Switch, SwitchKind, SwitchOptions};
use super::ovs::Ovs;
use super::testpmd_forwarder::TestpmdForwarder;
use super::vicinity::Vicinity;

/// Starts a switch on the switches' CPU with everything it needs inside `folder`; dropping it
/// stops it. `program` is the `vicinity` binary.
pub(super) fn start(
    peer: SwitchKind,
    shape: SwitchOptions,
    folder: &Path,
    program: &Path,
) -> Result<Box<dyn Switch>> {
    Ok(match peer {
        SwitchKind::Vicinity => Box::new(Vicinity::start(folder, program, shape.ports)?),
        SwitchKind::OvsDpdk => Box::new(Ovs::start(folder, shape)?),
        SwitchKind::Testpmd => Box::new(TestpmdForwarder::start(folder, shape.ports)?),
    })
}
