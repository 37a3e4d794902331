//! Measures channels under disturbances: how much a stream's rate varies, and how long the stream takes to recover.

use std::time::Duration;

use super::flow::{Flow, FlowResult};
use super::pace::Pace;
use crate::sample::{Cell, Values, values};
use crate::testbed::Testbed;
use report::inference::variation;
use report::stats::{median, quantile};
use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

pub(super) fn measure(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let channel = cell.level("channel");
    testbed.run_only(2)?;
    let network = testbed.between(channel)?;
    let target = channel::address(network, 2);
    let flow = |udp, size| Flow {
        target: &target,
        udp,
        size,
        parallel: 1,
        seconds: pace.seconds,
    };
    let traffic = cell.level("traffic");
    let most = testbed.vms.len() / 2;
    let pairs_of = match traffic.split_once(" pairs") {
        Some(("all", _)) => Some(most),
        Some((count, _)) => Some(count.parse().unwrap_or(1).min(most)),
        None => None,
    };
    if let Some(count) = pairs_of {
        testbed.run_only(2 * count)?;
        return pairs(testbed, network, count, pace);
    }
    let alone = |flow: Flow<'_>| -> Result<Values> { Ok(stability(&flow.run(testbed.vm(1)?)?)) };
    match traffic {
        "tcp 64" => alone(flow(false, 64)),
        "tcp 32K" => alone(flow(false, 32768)),
        "udp 64" => alone(flow(true, 64)),
        "udp 32K" => alone(flow(true, 32768)),
        "udp burst" => burst(testbed, flow(true, 1024)),
        "a VM dies" => death(testbed, channel, flow(false, 32768)),
        other => Err(Error::Host(format!("there is no traffic called {other}"))),
    }
}

/// Metrics of a stream's stability.
fn stability(flown: &FlowResult) -> Values {
    let worst = quantile(&flown.pieces, 0.0) / median(&flown.pieces);
    let list = [
        ("mbit_s", flown.mbit_s),
        ("cov", variation(&flown.pieces)),
        ("worst", worst),
    ];
    list.into_iter()
        .filter(|(_, value)| value.is_finite())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// Measures a stream during which a burst of five others begins half-way.
fn burst(testbed: &Testbed, flow: Flow<'_>) -> Result<Values> {
    let client = testbed.vm(1)?;
    let stream = Flow {
        udp: false,
        size: 32768,
        ..flow
    }
    .start(client)?;
    interrupt::sleep(Duration::from_millis(1500))?;
    // The burst sends datagrams to a port without a listener.
    let burst = format!(
        "timeout 0.3 bash -c 'while :; do printf %1024s x >/dev/udp/{}/9; done'; true",
        flow.target
    );
    client.check(&burst, Duration::from_secs(20))?;
    Ok(stability(&stream.wait()?))
}

/// Measures streams of `count` pairs at the same time: from VM 1 to VM 2, from VM 3 to VM 4, and so on.
fn pairs(testbed: &Testbed, network: u8, count: usize, pace: Pace) -> Result<Values> {
    let targets: Vec<String> = (1..=count)
        .map(|pair| channel::address(network, u8::try_from(2 * pair).unwrap_or(0)))
        .collect();
    let mut started = Vec::new();
    for (place, target) in targets.iter().enumerate() {
        let flow = Flow {
            target,
            udp: false,
            size: 32768,
            parallel: 1,
            seconds: pace.seconds,
        };
        started.push(flow.start(testbed.vm(2 * place + 1)?)?);
    }
    interrupt::sleep(Duration::from_secs(
        (pace.seconds + super::pace::WARM_UP).into(),
    ))?;
    let flown: Vec<FlowResult> = started
        .into_iter()
        .map(super::flow::Started::wait)
        .collect::<Result<_>>()?;
    let mut all: Vec<Values> = flown.iter().map(stability).collect();
    let total = flown.iter().map(|flown| flown.mbit_s).sum();
    let mut first = all.drain(..1).next().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "some dozens of VMs")]
    let vms = 2.0 * count as f64;
    first.extend(values(&[("mbit_s", total), ("vms", vms)]));
    Ok(first)
}

/// Kills a third VM while the stream runs, and measures how long the stream stops.
fn death(testbed: &Testbed, channel: &str, flow: Flow<'_>) -> Result<Values> {
    let killed_vm = testbed.boot_killable_vm(channel)?;
    let stream = flow.start(testbed.vm(1)?)?;
    interrupt::sleep(Duration::from_millis(1600))?;
    killed_vm.stop();
    let flown = stream.wait()?;
    // The stream stops during the longest sequence of intervals with less than half of the median rate.
    let low = median(&flown.pieces) / 2.0;
    let (mut longest, mut row) = (0_u32, 0);
    for piece in &flown.pieces {
        row = if *piece < low { row + 1 } else { 0 };
        longest = longest.max(row);
    }
    let mut found = stability(&flown);
    found.extend(values(&[("recovery_ms", f64::from(longest) * 100.0)]));
    Ok(found)
}
