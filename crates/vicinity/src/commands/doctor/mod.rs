//! `vicinity doctor`: what this machine can do, what is missing, and the remedy.
//!
//! Where possible, a check uses the feature itself: it boots a kernel to test an accelerator, creates a
//! memfd, or asks QEMU for its version. If a daemon runs, the command checks its VMs, too ([`running`]).

mod accel;
mod check;
mod gateways;
mod host;
mod links;
mod pages;
mod reach;
mod running;
mod sockets;
mod stuck;
mod tools;
mod vsock;

use std::path::Path;

use self::check::Check;
use super::failure::Failure;
use super::output::{self, print};

/// Runs all checks and prints the results.
pub(crate) fn run(runtime_dir: &Path, json: bool) -> Result<(), Failure> {
    // The probe boots a guest, which must not outlive a Ctrl-C.
    vm_harness::interrupt::install()?;
    let checks = examine(runtime_dir);
    match json {
        true => print(&output::as_json(&checks))?,
        false => print(&check::as_text(&checks))?,
    }
    match check::can_serve(&checks) {
        true => Ok(()),
        false => Err(Failure::Doctor),
    }
}

/// Runs all checks. Takes up to 5 s if `/dev/kvm` exists, because a check then boots a kernel.
fn examine(runtime_dir: &Path) -> Vec<Check> {
    let mut checks = vec![tools::qemu(), accel::probe()];
    checks.extend(host::checks(runtime_dir));
    let live = stuck::look(runtime_dir);
    checks.extend(running::checks(runtime_dir, live.as_ref()));
    checks.extend(live.as_ref().map(stuck::checks).unwrap_or_default());
    checks.extend(gateways::of_this_vm());
    checks.extend(tools::demo());
    checks.extend(tools::bench());
    checks
}
