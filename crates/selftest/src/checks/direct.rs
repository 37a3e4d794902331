//! The direct channel between a `q35` VM and a `pc` VM.

use std::time::{Duration, Instant};

use vm_harness::error::{Error, Result};
use vm_harness::guest_module::GuestModule;
use vm_harness::interrupt;
use vm_harness::vm::Vm;

use crate::daemon::Daemon;
use crate::guest::{Guest, ping, require_clean_kernel, serve, sh, until};
use crate::outcome::Outcome;
use crate::testbed::Testbed;

/// Longest time until a VM has joined, or has left.
const LIMIT: Duration = Duration::from_secs(60);

/// Seconds of the TCP stream.
const STREAM: u32 = 2;

/// Lets two VMs join, exchange packets, leave under load and join again.
pub(super) fn join_and_leave(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One, Guest::Mover])?;
    let (one, mover, daemon) = (bed.vm(Guest::One)?, bed.vm(Guest::Mover)?, bed.daemon()?);
    for guest in [Guest::One, Guest::Mover] {
        until_state(daemon, guest.name(), "joined")?;
        load(bed.vm(guest)?, guest)?;
    }
    for vm in [one, mover] {
        until_peers(vm, 1)?;
    }
    ping(one, &address(Guest::Mover))?;
    ping(mover, &address(Guest::One))?;
    serve(mover)?;
    let stream = vm_harness::workload::tcp(one, &address(Guest::Mover), STREAM)?;
    let mut outcome = Outcome::pass().figure("TCP", stream.mbit_s, "Mbit/s");

    let flood = one.start(&format!("exec ping -f {}", address(Guest::Mover)))?;
    let begin = Instant::now();
    daemon.text(&["direct", "leave", mover.name()])?;
    outcome = outcome.figure("leave, under a flood", begin.elapsed().as_secs_f64(), "s");
    until_peers(one, 0)?;
    let begin = Instant::now();
    daemon.text(&["direct", "join", mover.name()])?;
    until_state(daemon, mover.name(), "joined")?;
    until(mover, "test -e /sys/class/net/direct0")?;
    set_address(mover, Guest::Mover)?;
    until_peers(one, 1)?;
    outcome = outcome.figure("join, under a flood", begin.elapsed().as_secs_f64(), "s");
    flood.kill()?;
    // The first packets after a join may find the peer's old session.
    until(one, &format!("ping -c 1 -W 1 {}", address(Guest::Mover)))?;
    ping(one, &address(Guest::Mover))?;
    for vm in [one, mover] {
        outcome = require_clean_kernel(outcome, vm)?;
    }
    Ok(outcome)
}

/// Waits until the daemon reports a member in this state.
fn until_state(daemon: &Daemon, vm: &str, state: &str) -> Result<()> {
    let mut last = (String::new(), String::new());
    let reached = interrupt::poll("the state of a member", LIMIT, || {
        last = daemon.direct_state(vm)?;
        Ok((last.0 == state).then_some(()))
    });
    match reached {
        Err(Error::Timeout { .. }) => {
            let (now, reason) = last;
            Err(Error::Host(format!(
                "VM {vm} is `{now}` and not `{state}` in its trust group: {reason}"
            )))
        }
        other => other,
    }
}

/// Loads the module in a guest, unless it is loaded, and gives its device an address.
fn load(vm: &Vm, guest: Guest) -> Result<()> {
    let name = GuestModule::Direct.name();
    sh(
        vm,
        &format!("grep -q ^{name} /proc/modules || insmod /lib/modules/{name}.ko"),
    )?;
    until(vm, "test -e /sys/class/net/direct0")?;
    set_address(vm, guest)
}

fn set_address(vm: &Vm, guest: Guest) -> Result<()> {
    let address = address(guest);
    let set = format!("ip addr replace {address}/24 dev direct0 && ip link set direct0 up");
    sh(vm, &set).map(drop)
}

/// Waits until a guest exchanges packets with `count` others.
fn until_peers(vm: &Vm, count: u32) -> Result<()> {
    until(
        vm,
        &format!("ethtool -S direct0 | grep -q ' peers: {count}$'"),
    )
}

/// Returns the address of a VM's device of the direct channel.
fn address(guest: Guest) -> String {
    format!("10.97.0.{}", guest.number())
}
