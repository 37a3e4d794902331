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
        say("ports of Vicinity: no daemon answers; see `vicinity port list`");
    }
    match (meter.exists(), &reading.host.energy) {
        (_, Some(_)) => {}
        (true, None) => say("energy: the counters (RAPL) are for root only; modelled instead"),
        (false, None) => say("energy: this host has no counters (RAPL); modelled instead"),
    }
    if reading.host.pressure.is_none() {
        say("CPU pressure: the kernel does not measure it; boot with psi=1");
    }
    let kvm = |vm: &Vm| vm.accelerator.as_deref() == Some("KVM");
    if vms.iter().any(|vm| kvm(vm) && vm.halt_poll.is_none()) {
        say(
            "halt polling, which is in the guests' use: needs root and debugfs on /sys/kernel/debug",
        );
    }
    let rss = |vm: &Vm| {
        vm.memory
            .is_some_and(|memory| memory.kind == MemoryKind::Rss)
    };
    if vms.iter().any(rss) {
        say("some VMs' share of shared memory (PSS): for root only, and not read above 4 GiB");
    }
    all
}

/// Returns the limits of a VM's figures.
pub(crate) fn of_vm(vm: &reading::Vm) -> Vec<String> {
    let mut threads = vm.threads.values();
    match threads.any(|thread| thread.role == Role::Unnamed) {
        true => vec![
            "QEMU's threads have no names: all but its main loop are counted as the guest's; \
             start it with -name NAME,debug-threads=on"
                .to_owned(),
        ],
        false => Vec::new(),
    }
}
