//! Rings that stop and start again while frames arrive.

use std::time::{Duration, Instant};

use serde_json::json;
use vm_harness::channel;
use vm_harness::error::{Error, Result};

use crate::daemon::{number, text};
use crate::guest::{Guest, ping, require_clean_kernel, serve};
use crate::outcome::Outcome;
use crate::testbed::{SWITCH, Testbed};

/// How often QEMU stops a VM.
const STOPS: u32 = 30;

/// How often the data plane is killed.
const KILLS: u32 = 3;

/// Answers that show that a VM receives.
const ANSWERS: u64 = 20;

/// Longest time until frames arrive again.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// QEMU sends the kick of a ring before its call, so a frame may be delivered before the switch can interrupt the
/// guest. A switch that does not interrupt then leaves the guest's queue dead: Linux has no watchdog for it.
pub(super) fn stop_continue(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One, Guest::Two])?;
    let (one, two, daemon) = (bed.vm(Guest::One)?, bed.vm(Guest::Two)?, bed.daemon()?);
    ping(one, &address(Guest::Two))?;
    let flood = one.start(&format!("exec ping -f {}", address(Guest::Two)))?;
    let mut monitor = two.qmp()?;
    let mut longest = Duration::ZERO;
    for round in 1..=STOPS {
        for command in ["stop", "cont"] {
            monitor.execute(command, &json!({}))?;
        }
        // Only VM two answers VM one.
        match daemon.until_received(one.name(), ANSWERS, RECOVERY_TIMEOUT) {
            Ok(took) => longest = longest.max(took),
            Err(Error::Timeout { .. }) => {
                return Ok(Outcome::fail(format!(
                    "VM two received no frame after it was stopped and continued {round} times: its queue is dead"
                )));
            }
            Err(other) => return Err(other),
        }
    }
    flood.kill()?;
    let outcome = Outcome::pass()
        .figure("stops", f64::from(STOPS), "")
        .figure(
            "longest time to 20 answers",
            longest.as_secs_f64() * 1e3,
            "ms",
        );
    require_clean_kernel(require_no_quarantine(bed, outcome)?, two)
}

/// Kills the data plane while VM one sends to VM two.
pub(super) fn restart(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::One, Guest::Two])?;
    let (one, two, daemon) = (bed.vm(Guest::One)?, bed.vm(Guest::Two)?, bed.daemon()?);
    serve(two)?;
    let load = one.start(&format!(
        "exec iperf3 --client {} --time 600",
        address(Guest::Two)
    ))?;
    let mut longest = Duration::ZERO;
    for _ in 0..KILLS {
        daemon.until_received(two.name(), 1000, RECOVERY_TIMEOUT)?;
        let before = daemon.restarts()?;
        daemon.kill_data_plane()?;
        let begin = Instant::now();
        vm_harness::interrupt::poll("the restart of the data plane", RECOVERY_TIMEOUT, || {
            Ok((daemon.restarts()? > before).then_some(()))
        })?;
        for vm in [one, two] {
            daemon.until_state(vm.name(), "running", RECOVERY_TIMEOUT)?;
        }
        daemon.until_received(two.name(), 100, RECOVERY_TIMEOUT)?;
        longest = longest.max(begin.elapsed());
        if let Some(ended) = load.ended()? {
            let reason = format!("the TCP connection ended: {}", ended.stderr.trim());
            return Ok(Outcome::fail(reason));
        }
    }
    load.kill()?;
    let outcome = Outcome::pass()
        .figure("kills", f64::from(KILLS), "")
        .figure(
            "longest time from a kill to 100 frames",
            longest.as_secs_f64() * 1e3,
            "ms",
        );
    let outcome = require_clean_kernel(outcome, two)?;
    require_no_quarantine(bed, require_clean_kernel(outcome, one)?)
}

fn require_no_quarantine(bed: &Testbed, mut outcome: Outcome) -> Result<Outcome> {
    for guest in [Guest::One, Guest::Two] {
        let port = bed.daemon()?.port(guest.name())?;
        outcome = outcome.require(number(&port, "/quarantines") == 0, || {
            let reason = text(&port, "/reason");
            format!("the port of VM {} was quarantined: {reason}", guest.name())
        });
    }
    Ok(outcome)
}

fn address(guest: Guest) -> String {
    channel::address(SWITCH, guest.number())
}
