//! Lists the figures that are unavailable or inexact on this host, and what the user can do about each.

use crate::energy::Meter;
use crate::reading::{self, MemoryKind, Reading};
use crate::report::Vm;
use crate::role::Role;

/// Returns the limits of the host's figures.
pub(crate) fn of_host(reading: &Reading, meter: &Meter, vms: &[Vm]) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |what: &str| all.push(what.to_owned());
    if let Err(why) = &reading.switches {
        say(&format!("switches between VMs: {why}"));
    }
    if reading.daemon.is_none() {
        say("traffic of Vicinity's ports: no daemon answers; see `vicinity port list`");
    }
    match (meter.exists(), &reading.host.energy) {
        (_, Some(_)) => {}
        (true, None) => {
            say("energy: only root can read the counters (RAPL), so the figures are modelled");
        }
        (false, None) => {
            say("energy: this host has no counters (RAPL), so the figures are modelled");
        }
    }
    if reading.host.pressure.is_none() {
        say("CPU pressure: the kernel does not measure it; boot with psi=1");
    }
    let kvm = |vm: &Vm| vm.accelerator.as_deref() == Some("KVM");
    if vms.iter().any(|vm| kvm(vm) && vm.halt_poll.is_none()) {
        say(
            "halt polling, which the guests' use includes: run as root, and mount debugfs on /sys/kernel/debug",
        );
    }
    let rss = |vm: &Vm| {
        vm.memory
            .is_some_and(|memory| memory.kind == MemoryKind::Rss)
    };
    if vms.iter().any(rss) {
        say(
            "the share of some VMs in shared memory (PSS): only root can read it, and only up to 4 GiB",
        );
    }
    all
}

/// Returns the limits of a VM's figures.
pub(crate) fn of_vm(vm: &reading::Vm) -> Vec<String> {
    let mut threads = vm.threads.values();
    match threads.any(|thread| thread.role == Role::Unnamed) {
        true => vec![
            "QEMU's threads have no names, so all but its main loop count as the guest; start QEMU with -name \
                NAME,debug-threads=on"
                .to_owned(),
        ],
        false => Vec::new(),
    }
}
