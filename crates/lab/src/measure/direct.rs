//! Measures streams and requests between VMs of one host on separate cores, over each channel, including the direct
//! one.

use std::time::Instant;

use super::flow::Flow;
use super::pace::Pace;
use super::streams::{times, watched};
use crate::sample::{Cell, Values, values};
use crate::testbed::Testbed;
use vm_harness::channel;
use vm_harness::direct::counters;
use vm_harness::error::Result;
use vm_harness::hardware_counter::GuestInstructions;
use vm_harness::interrupt;

/// Returns a cell's flow to VM 2, whose address on the channel is `target`.
fn flow<'a>(target: &'a str, cell: &Cell, pace: Pace) -> Flow<'a> {
    Flow {
        target,
        udp: cell.level("protocol") == "udp",
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds,
    }
}

/// Measures a stream: the CPU time of each gigabyte, and on the direct channel the number of doorbells
/// for each packet.
pub(super) fn stream(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let channel = cell.level("channel");
    let target = channel::address(testbed.between(channel)?, 2);
    let _pinned = testbed.pin("separate")?;
    let flow = flow(&target, cell, pace);
    let rung = |testbed: &Testbed| -> Result<Option<(f64, f64)>> {
        if channel != "direct" {
            return Ok(None);
        }
        let (one, two) = (counters(testbed.vm(1)?)?, counters(testbed.vm(2)?)?);
        Ok(Some((one.0 + two.0, one.1 + two.1)))
    };
    let before = rung(testbed)?;
    let mut metrics = watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)?;
    if let (Some(before), Some(after)) = (before, rung(testbed)?) {
        let bells = (after.1 - before.1) / (after.0 - before.0);
        metrics.extend(values(&[("bells", bells)]));
    }
    let figure = |key: &str| metrics.get(key).copied().unwrap_or(f64::NAN);
    // The number of gigabytes that arrive in each second.
    let rate = figure("mbit_s") / 8000.0;
    let backend = figure("backend_use_pct") / 100.0;
    let all = backend + (figure("vm1_use_pct") + figure("vm2_use_pct")) / 100.0;
    metrics.extend(values(&[
        ("backend_s_gb", backend / rate),
        ("cpu_s_gb", all / rate),
    ]));
    Ok(metrics)
}

/// Measures a stream: the guests' instructions for each kilobyte that arrives.
pub(super) fn instructions(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let target = channel::address(testbed.between(cell.level("channel"))?, 2);
    let _pinned = testbed.pin("separate")?;
    let flow = flow(&target, cell, pace);
    let vms = [testbed.vm(1)?, testbed.vm(2)?];
    // QEMU's emulator counts with a plugin, and under KVM the processor counts.
    let mut under_kvm = match testbed.counter {
        None => Some(GuestInstructions::start(
            &[testbed.guest(1), testbed.guest(2)].concat(),
        )?),
        Some(_) => None,
    };
    let mut count = || -> Result<(Instant, u64)> {
        let sum = match (&testbed.counter, &mut under_kvm) {
            (Some(plugin), _) => vms.iter().map(|vm| plugin.read(vm.name())).sum(),
            (None, Some(processor)) => processor.read(),
            (None, None) => Ok(0),
        };
        Ok((Instant::now(), sum?))
    };
    let (warm_up, window) = pace.watched();
    let [one, _] = vms;
    let started = flow.start(one)?;
    interrupt::sleep(warm_up)?;
    let (began, before) = count()?;
    interrupt::sleep(window)?;
    let (ended, after) = count()?;
    let mbit_s = started.wait()?.mbit_s;
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each_second = (after - before) as f64 / (ended - began).as_secs_f64();
    Ok(values(&[
        ("mbit_s", mbit_s),
        // A kilobyte has 1024 bytes here.
        ("instructions_kb", each_second / (mbit_s * 125e3 / 1024.0)),
    ]))
}

/// Measures requests and responses.
pub(super) fn requests(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let target = channel::address(testbed.between(cell.level("channel"))?, 2);
    let _pinned = testbed.pin("separate")?;
    let trip = flow(&target, cell, pace).requests(testbed.vm(1)?)?;
    let mut metrics = times(&trip);
    metrics.extend(values(&[("trans_s", 1e6 / trip.mean_us)]));
    Ok(metrics)
}
