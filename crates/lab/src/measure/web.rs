//! Measures web servers in VMs, loaded from the second host.
//!
//! Loads are shares of the maximum rate of each server alone, which is measured first (the solo rate).
//! The clients reach the VMs over the switch: over the bridge the backend is QEMU itself, which cannot get a weight of
//! its own.

use super::pace::{Pace, WARM_UP};
use crate::http::{Load, Report};
use crate::sample::{Cell, Values, values};
use crate::second_host;
use crate::settings::{Group, Groups, Hierarchy, Journal, pin};
use crate::testbed::Testbed;
use crate::thread_times::watch;
use vm_harness::error::{Error, Result};

const CHANNEL: &str = "switch";

/// Requests under way in a measurement of a server's maximum rate.
const SATURATING: usize = 8;

/// Maximum number of requests under way in an open loop.
const MAX_OUTSTANDING: usize = 64;

/// A file of a VM's server, and the rate of requests for it.
struct FileLoad<'a> {
    vm: u8,
    server: &'a str,
    file: &'a str,
    rate: Option<f64>,
}

impl FileLoad<'_> {
    fn load(&self, testbed: &Testbed, pace: Pace) -> Result<Load> {
        Ok(Load {
            server: second_host::server(testbed.network(CHANNEL)?, self.vm, port(self.server))?,
            path: format!("/{}", self.file),
            rate: self.rate,
            warm_up: f64::from(WARM_UP),
            seconds: f64::from(pace.seconds),
            workers: if self.rate.is_some() {
                MAX_OUTSTANDING
            } else {
                SATURATING
            },
        })
    }
}

/// Returns the port of a server in every VM.
pub(super) fn port(server: &str) -> u16 {
    if server == "nginx" { 8081 } else { 8080 }
}

/// Runs all loads at the same time.
fn run_loads(testbed: &Testbed, asks: &[FileLoad<'_>], pace: Pace) -> Result<Vec<Report>> {
    let loads: Vec<Load> = asks
        .iter()
        .map(|ask| ask.load(testbed, pace))
        .collect::<Result<_>>()?;
    let remote = &testbed.remote;
    let reports: Result<Vec<Report>> = std::thread::scope(|scope| {
        let clients: Vec<_> = loads
            .iter()
            .map(|load| scope.spawn(|| remote.request(load)))
            .collect();
        let ended = clients.into_iter().map(|client| {
            client
                .join()
                .map_err(|_| Error::Host("an HTTP client failed".to_owned()))?
        });
        ended.collect()
    });
    let reports = reports?;
    match reports.iter().find(|report| report.answers == 0) {
        None => Ok(reports),
        Some(silent) => {
            let why = silent.error.as_deref().unwrap_or("no request was sent");
            Err(Error::Host(format!("a server answered nothing: {why}")))
        }
    }
}

/// Runs the loads, and measures the threads of the first `busy` of `running` VMs.
fn watched(
    testbed: &Testbed,
    asks: &[FileLoad<'_>],
    running: usize,
    pace: Pace,
) -> Result<(Vec<Report>, Values)> {
    let sets = testbed.sets(asks.len(), running);
    watch(&sets, pace.watched(), || run_loads(testbed, asks, pace))
}

/// Returns the maximum rate of a server alone, which is measured once in a run.
pub(super) fn solo(testbed: &mut Testbed, server: &str, file: &str, pace: Pace) -> Result<f64> {
    solo_at(testbed, server, file, pace, "")
}

/// Like [`solo`]; `place` names the placement of threads that the caller has chosen.
fn solo_at(
    testbed: &mut Testbed,
    server: &str,
    file: &str,
    pace: Pace,
    place: &str,
) -> Result<f64> {
    let key = format!("{server}/{file}/{place}");
    if let Some(known) = testbed.solo.get(&key) {
        return Ok(*known);
    }
    testbed.run_only(1)?;
    let longer = Pace {
        seconds: pace.seconds.max(2),
        ..pace
    };
    let reports = run_loads(
        testbed,
        &[FileLoad {
            vm: 1,
            server,
            file,
            rate: None,
        }],
        longer,
    )?;
    let rate = reports.first().map_or(0.0, |report| report.req_s);
    testbed.solo.insert(key, rate);
    Ok(rate)
}

/// Metrics of one server's report.
fn figures(report: &Report) -> Values {
    values(&[
        ("req_s", report.req_s),
        ("reply_ms", report.reply_ms),
        ("reply_p50_ms", report.reply_p50_ms),
        ("reply_p99_ms", report.reply_p99_ms),
        ("reply_p999_ms", report.reply_p999_ms),
        ("transfer_ms", report.transfer_ms),
        ("client_cpu", report.client_cpu),
    ])
}

fn idle(cell: &Cell) -> usize {
    cell.level("idle").parse().unwrap_or(0)
}

/// Measures the maximum rate of VM 1 beside idle VMs.
pub(super) fn idle_max(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let running = 1 + idle(cell);
    testbed.run_only(running)?;
    let asks = [FileLoad {
        vm: 1,
        server: cell.level("server"),
        file: cell.level("file"),
        rate: None,
    }];
    let (reports, mut metrics) = watched(testbed, &asks, running, pace)?;
    reports
        .iter()
        .for_each(|report| metrics.extend(figures(report)));
    Ok(metrics)
}

/// Measures VM 1 at a share of its maximum rate, beside idle VMs.
pub(super) fn idle_rate(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let (file, percent) = cell.level("load").split_once('@').unwrap_or(("1", "50"));
    let server = cell.level("server");
    let most = solo(testbed, server, file, pace)?;
    let rate = most * share(percent);
    let running = 1 + idle(cell);
    testbed.run_only(running)?;
    let (reports, mut metrics) = watched(
        testbed,
        &[FileLoad {
            vm: 1,
            server,
            file,
            rate: Some(rate),
        }],
        running,
        pace,
    )?;
    reports
        .iter()
        .for_each(|report| metrics.extend(figures(report)));
    Ok(metrics)
}

/// Parses a level in percent as a share.
fn share(percent: &str) -> f64 {
    percent.parse::<f64>().unwrap_or(50.0) / 100.0
}

/// Measures VM 1 and VM 2, each at a share of its own maximum rate.
pub(super) fn neighbours(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let (one, two) = cell.level("pair").split_once('+').unwrap_or(("1", "1"));
    let load = share(cell.level("load"));
    let server = cell.level("server");
    let most = [
        solo(testbed, server, one, pace)?,
        solo(testbed, server, two, pace)?,
    ];
    pair(testbed, server, [one, two], most, [load, load], pace)
}

/// Measures two servers, each at a share of its maximum rate.
fn pair(
    testbed: &mut Testbed,
    server: &str,
    [one, two]: [&str; 2],
    most: [f64; 2],
    shares: [f64; 2],
    pace: Pace,
) -> Result<Values> {
    testbed.run_only(2)?;
    let rates = [most[0] * shares[0], most[1] * shares[1]];
    let asks = [(1, one, rates[0]), (2, two, rates[1])].map(|(vm, file, rate)| FileLoad {
        vm,
        server,
        file,
        rate: Some(rate),
    });
    let (reports, mut metrics) = watched(testbed, &asks, 2, pace)?;
    let rate = |place: usize| reports.get(place).map_or(0.0, |report| report.req_s);
    let bytes = |place: usize| reports.get(place).map_or(0.0, |report| report.kb_s);
    let pages = (bytes(0) + bytes(1)) * 1000.0 / 4096.0;
    let executions = metrics.get("backend_exec_s").copied().unwrap_or(f64::NAN);
    metrics.extend(values(&[
        ("vm1_req_s", rate(0)),
        ("vm2_req_s", rate(1)),
        ("req_s", rate(0) + rate(1)),
        ("vm1_kb_s", bytes(0)),
        ("vm2_kb_s", bytes(1)),
        ("ratio", rate(0) / most[0] + rate(1) / most[1]),
        ("fair", rate(0) / rate(1)),
        ("pages_s", pages),
        ("pages_exec", pages / executions),
    ]));
    Ok(metrics)
}

/// Measures a load on a number of VMs.
pub(super) fn count(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let (server, file) = (cell.level("server"), cell.level("file"));
    let most = solo(testbed, server, file, pace)?;
    let vms: u8 = cell.level("vms").parse().unwrap_or(1);
    let (percent, how) = cell.level("load").split_once(' ').unwrap_or(("10", "each"));
    let each = if how == "all" {
        share(percent) / f64::from(vms)
    } else {
        share(percent)
    };
    testbed.run_only(vms.into())?;
    let asks: Vec<FileLoad<'_>> = (1..=vms)
        .map(|vm| FileLoad {
            vm,
            server,
            file,
            rate: Some(most * each),
        })
        .collect();
    let (reports, mut metrics) = watched(testbed, &asks, vms.into(), pace)?;
    metrics.extend(values(&[(
        "req_s",
        reports.iter().map(|report| report.req_s).sum(),
    )]));
    Ok(metrics)
}

/// Measures two servers and the backend on one CPU, with weights.
pub(super) fn weights(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    let (one, two) = cell.level("set").split_once('+').unwrap_or(("1", "1"));
    let shares: Vec<f64> = cell
        .level("weight")
        .split(':')
        .filter_map(|share| share.parse().ok())
        .collect();
    let [backend, vm1, vm2] = shares.as_slice() else {
        return Err(Error::Host(format!(
            "{} is no set of weights",
            cell.level("weight")
        )));
    };
    let threads = testbed.backend();
    let mut journal = Journal::begin()?;
    let guests = [testbed.guest(1).to_vec(), testbed.guest(2).to_vec()];
    for thread in guests.iter().flatten().chain(&threads) {
        pin(&mut journal, *thread, &[0])?;
    }
    // These are the maximum rates of both servers on the shared CPU, before any weight is set.
    let server = cell.level("server");
    let most = [
        solo_at(testbed, server, one, pace, ONE_CPU)?,
        solo_at(testbed, server, two, pace, ONE_CPU)?,
    ];
    let group = |name, share: &f64, threads| Group {
        name,
        share: *share,
        cap: None,
        threads,
    };
    let sets = [
        group("backend", backend, threads.as_slice()),
        group("vm1", vm1, guests[0].as_slice()),
        group("vm2", vm2, guests[1].as_slice()),
    ];
    Groups::create(&mut journal, &Hierarchy::find()?, &sets)?;
    let metrics = pair(
        testbed,
        server,
        [one, two],
        most,
        paper_shares(one, two),
        pace,
    );
    drop(journal);
    metrics
}

/// Placement of all threads on the first CPU.
const ONE_CPU: &str = "one CPU";

/// Returns the paper's loads on two servers, as shares of each server's solo rate. The paper loads two servers of the
/// same file with 360 of 720 requests a second for 10 kB, or 82 of 165 for 70 kB; servers of different files with 800
/// of 1070 and 150 of 165.
fn paper_shares(one: &str, two: &str) -> [f64; 2] {
    match one == two {
        true => [0.5, 0.5],
        false => [0.75, 0.9],
    }
}
