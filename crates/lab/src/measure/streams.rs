//! Measures streams and requests between VMs, and with the second host.

use super::flow::Flow;
use super::pace::Pace;
use crate::sample::{Cell, Values, values};
use crate::second_host;
use crate::settings::Lookups;
use crate::testbed::Testbed;
use crate::thread_times::{Set, watch};
use report::inference::{mean, variation};
use vm_harness::channel;
use vm_harness::error::{Error, Result};
use vm_harness::host;
use vm_harness::vm::Vm;
use vm_harness::workload::RoundTrip;

/// Bytes of a message if the experiment does not vary them.
const MESSAGE: u32 = 1024;

/// Number of streams of the mix.
const STREAMS: u32 = 5;

/// Runs a flow, and measures sets of threads during the flow.
pub(super) fn watched(sets: &[Set], client: &Vm, flow: &Flow<'_>, pace: Pace) -> Result<Values> {
    let (flown, mut metrics) = watch(sets, pace.watched(), || flow.run(client))?;
    metrics.extend(values(&[
        ("mbit_s", flown.mbit_s),
        ("loss_pct", flown.loss_pct),
    ]));
    Ok(metrics)
}

/// Measures the same TCP stream in each cell (A/A).
pub(super) fn noise(testbed: &mut Testbed, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let target = channel::address(testbed.network("switch")?, 2);
    let flow = Flow {
        target: &target,
        udp: false,
        size: 65536,
        parallel: 1,
        seconds: pace.seconds,
    };
    watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)
}

/// Measures five UDP streams, some to the second host and some to the other VM.
pub(super) fn mix(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let network = testbed.network(cell.level("channel"))?;
    let far: u32 = cell
        .level("mix")
        .split(':')
        .next()
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let targets = [
        (far, second_host::address(network)),
        (STREAMS - far.min(STREAMS), channel::address(network, 2)),
    ];
    let flows = targets.each_ref().map(|(parallel, target)| Flow {
        target,
        udp: true,
        size: MESSAGE,
        parallel: *parallel,
        seconds: pace.seconds,
    });
    let sets = testbed.sets(2, 2);
    let (rates, mut metrics) = watch(&sets, pace.watched(), || {
        let client = testbed.vm(1)?;
        let started: Vec<_> = flows
            .iter()
            .map(|flow| (flow.parallel > 0).then(|| flow.start(client)).transpose())
            .collect::<Result<_>>()?;
        vm_harness::interrupt::sleep(std::time::Duration::from_secs(
            (pace.seconds + super::pace::WARM_UP).into(),
        ))?;
        started
            .into_iter()
            .map(|flow| flow.map_or(Ok(0.0), |flow| flow.wait().map(|flown| flown.mbit_s)))
            .collect::<Result<Vec<f64>>>()
    })?;
    let [far, near] = [0, 1].map(|place| rates.get(place).copied().unwrap_or(0.0));
    metrics.extend(values(&[
        ("mbit_s", far + near),
        ("remote_mbit_s", far),
        ("local_mbit_s", near),
    ]));
    Ok(metrics)
}

/// Parses a level of the look-ups: their number for each frame, and the number of FDB entries;
/// `None` for the bridge.
fn chain(level: &str) -> Result<Option<(u32, u32)>> {
    if level == "native" {
        return Ok(None);
    }
    let (times, fdb_entries) = level.split_once('@').unwrap_or((level, "1"));
    let numbers = times.parse().ok().zip(fdb_entries.parse().ok());
    let missing = || Error::Host(format!("{level} is not a number of look-ups"));
    numbers.map(Some).ok_or_else(missing)
}

/// Measures a UDP stream to the second host, then requests to it over TCP and over UDP, with a number of FDB look-ups
/// for each frame; and the time of a look-up.
pub(super) fn lookup(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let chain = chain(cell.level("look-ups"))?;
    let (network, _notification) = match chain {
        None => (testbed.network("bridge")?, None),
        Some((times, fdb_entries)) => {
            let (network, folder) = testbed.with_fdb_entries(fdb_entries)?;
            let told = Lookups::set(&testbed.place.vicinity, folder, times)?;
            (network, Some(told))
        }
    };
    let target = second_host::address(network);
    let flow = Flow {
        target: &target,
        udp: true,
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds,
    };
    let mut metrics = watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)?;
    metrics.extend(exchanges(&flow, testbed.vm(1)?)?);
    if let Some((times, fdb_entries)) = chain {
        let nanoseconds = time_lookups(testbed, fdb_entries)? * f64::from(times);
        let rate = metrics.get("mbit_s").copied().unwrap_or(f64::NAN) * 1e6 / 8.0;
        let messages = rate / f64::from(flow.size);
        metrics.extend(values(&[
            ("lookup_ns", nanoseconds),
            ("lookup_pct", nanoseconds * 1e-9 * messages * 100.0),
        ]));
    }
    Ok(metrics)
}

/// Returns the nanoseconds of a look-up among this number of FDB entries. It is measured on the table alone, apart
/// from the stream, because a look-up's share of the stream is too small to be measured.
fn time_lookups(testbed: &Testbed, fdb_entries: u32) -> Result<f64> {
    let mut command = host::command(&testbed.place.vicinity);
    command.args(["lab", "lookups", &format!("--fdb-entries={fdb_entries}")]);
    let text = host::run(command)?;
    let time = text.trim().parse();
    time.map_err(|_| Error::unreadable("the time of a look-up", &text))
}

/// Measures a stream between two VMs of this host: TCP or UDP, as the sweep's name says.
pub(super) fn neighbours(
    testbed: &mut Testbed,
    sweep: &str,
    cell: &Cell,
    pace: Pace,
) -> Result<Values> {
    testbed.run_only(2)?;
    let placement = if sweep == "tcp" {
        "separate"
    } else {
        cell.level("placement")
    };
    let _pinned = testbed.pin(placement)?;
    let target = channel::address(testbed.network(cell.level("channel"))?, 2);
    let flow = Flow {
        target: &target,
        udp: sweep == "udp",
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds,
    };
    watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)
}

/// Measures a UDP stream between two VMs on one CPU, then requests, over a switch with interrupt moderation
/// (`moderation-us`), or over the bridge.
pub(super) fn gather(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let _pinned = testbed.pin("shared")?;
    let network = match cell.level("gather") {
        "native" => testbed.network("bridge")?,
        micros => testbed.network_with_moderation(micros)?,
    };
    let target = channel::address(network, 2);
    let flow = Flow {
        target: &target,
        udp: true,
        size: cell.size("size"),
        parallel: 1,
        seconds: pace.seconds,
    };
    let mut metrics = watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)?;
    let requests = Flow { udp: false, ..flow };
    metrics.extend(times(&requests.requests(testbed.vm(1)?)?));
    Ok(metrics)
}

/// Measures requests over TCP, then over UDP.
fn exchanges(flow: &Flow<'_>, client: &Vm) -> Result<Values> {
    let mut metrics = Values::new();
    for (udp, prefix) in [(false, ""), (true, "udp_")] {
        let trip = Flow { udp, ..*flow }.requests(client)?;
        metrics.insert(format!("{prefix}trans_s"), 1e6 / trip.mean_us);
        let times = times(&trip).into_iter();
        metrics.extend(times.map(|(key, value)| (format!("{prefix}{key}"), value)));
    }
    Ok(metrics)
}

/// Percentiles of round trips.
pub(super) fn times(trip: &RoundTrip) -> Values {
    values(&[
        ("p50_us", trip.p50_us),
        ("p99_us", trip.p99_us),
        ("p999_us", trip.p999_us),
    ])
}

/// Measures the differences between successive TCP runs on a shared core.
pub(super) fn runs(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(2)?;
    let _pinned = testbed.pin("shared")?;
    let target = channel::address(testbed.network(cell.level("channel"))?, 2);
    let flow = Flow {
        target: &target,
        udp: false,
        size: MESSAGE,
        parallel: 1,
        seconds: pace.seconds,
    };
    let (mut found, mut each) = (Vec::new(), Values::new());
    for run in 1..=pace.runs {
        let metrics = watched(&testbed.sets(2, 2), testbed.vm(1)?, &flow, pace)?;
        let of = |key: &str| metrics.get(key).copied().unwrap_or(f64::NAN);
        each.insert(format!("run{run}_mbit_s"), of("mbit_s"));
        found.push((of("mbit_s"), of("switches_s") / (of("mbit_s") / 8.0)));
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (rates, costs): (Vec<f64>, Vec<f64>) = found.into_iter().unzip();
    let ends = costs
        .first()
        .zip(costs.last())
        .map_or(f64::NAN, |(slow, fast)| slow / fast);
    each.extend(values(&[
        ("mbit_s", mean(&rates)),
        ("cov", variation(&rates)),
        ("slow_fast", ends),
    ]));
    Ok(each)
}
