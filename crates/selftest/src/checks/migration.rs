//! A VM moves from one QEMU of this host to another while it receives.

use std::time::Duration;

use serde_json::json;
use vm_harness::channel;
use vm_harness::error::Result;
use vm_harness::interrupt;
use vm_harness::vm::Vm;

use crate::daemon::{Daemon, number};
use crate::guest::{Guest, ping, require_clean_kernel, serve, sh};
use crate::outcome::Outcome;
use crate::testbed::{SWITCH, Testbed};

/// The port of the second QEMU.
const ARRIVAL: &str = "arrival";

/// Longest time until frames arrive, or an address has moved.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest migration.
const LIMIT: Duration = Duration::from_secs(90);

pub(super) fn migrate(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One, Guest::Mover])?;
    let name = Guest::Mover.name();
    // A member of a trust group has devices of its peers, which cannot migrate.
    if bed.daemon()?.direct_state(name)?.0 == "joined" {
        bed.daemon()?.text(&["direct", "leave", name])?;
    }
    let spec = bed.spec_on_port(Guest::Mover, ARRIVAL)?;
    let spec = with_devices_of_the_source(spec);
    let (one, mover, daemon) = (bed.vm(Guest::One)?, bed.vm(Guest::Mover)?, bed.daemon()?);
    let address = channel::address(SWITCH, Guest::Mover.number());
    ping(one, &address)?;
    serve(mover)?;
    let load = one.start(&format!("exec iperf3 --client {address} --time 600"))?;
    sh(
        one,
        &format!("setsid ping -i 0.1 {address} </dev/null >/tmp/migration.log 2>&1 &"),
    )?;
    daemon.until_received(name, 1000, RECOVERY_TIMEOUT)?;

    let arrival = Vm::incoming(bed.image()?, spec)?;
    daemon.until_state(ARRIVAL, "connected", RECOVERY_TIMEOUT)?;
    let fast = json!({"max-bandwidth": 200 << 20, "downtime-limit": 1000});
    let moved = mover.migrate(&arrival, &fast)?.wait(LIMIT)?;
    arrival.wait_ready(RECOVERY_TIMEOUT)?;
    daemon.until_state(ARRIVAL, "running", RECOVERY_TIMEOUT)?;
    until_address_is_at(daemon, ARRIVAL)?;
    daemon.until_received(ARRIVAL, 1000, RECOVERY_TIMEOUT)?;
    if let Some(ended) = load.ended()? {
        let reason = format!("the TCP connection ended: {}", ended.stderr.trim());
        return Ok(Outcome::fail(reason));
    }
    load.kill()?;
    let echoes = sh(
        one,
        "pkill -INT -x ping; sleep 0.5; grep transmitted /tmp/migration.log",
    )?;
    let mut outcome = Outcome::pass()
        .figure("downtime", moved.downtime.as_secs_f64() * 1e3, "ms")
        .figure("total", moved.total.as_secs_f64(), "s")
        .figure("passes over memory", whole(moved.passes), "")
        .figure("memory sent", whole(moved.bytes >> 20), "MiB")
        .note(format!("echo requests every 100 ms: {echoes}"));
    ping(one, &address)?;
    let quarantines = number(&daemon.port(ARRIVAL)?, "/quarantines");
    outcome = outcome.require(quarantines == 0, || {
        "the second port was quarantined".to_owned()
    });
    outcome = require_clean_kernel(outcome, &arrival)?;
    drop(arrival);
    drop(bed.take(Guest::Mover));
    Ok(outcome)
}

/// Waits until the switch has the VM's address at this port and not at the first one.
fn until_address_is_at(daemon: &Daemon, port: &str) -> Result<()> {
    let fdb_entries = |vm: &str| Ok(number(&daemon.port(vm)?, "/fdb_entries"));
    interrupt::poll("the move of the VM's address", RECOVERY_TIMEOUT, || {
        Ok((fdb_entries(port)? > 0 && fdb_entries(Guest::Mover.name())? == 0).then_some(()))
    })
}

/// The daemon's options for the source name the network alone, so both QEMUs have the same devices.
fn with_devices_of_the_source(mut spec: vm_harness::vm::Spec) -> vm_harness::vm::Spec {
    spec.kernel_args.clear();
    spec
}

fn whole(number: u64) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
