//! Measures computing and sending in one VM (paper 003). A CPU-bound job runs in the VM; either a server in the VM or
//! the VM's space sends files.
//!
//! Clients on the second host fetch one file repeatedly, as fast as they are served. Meanwhile the VM
//! runs jobs, one after the other: each reads its input, computes, and writes a file of bounded size
//! into the server's folder, in place of an earlier one. The completion time is the mean of the jobs that begin in
//! the measured time. All of these jobs run to their end, and the clients continue until then. So the last job has the
//! stream beside it like the first, and the measured stream always has jobs beside it.
//!
//! The paper's jobs take half a minute, so the cost of writing the file is negligible. Writing a file into a space
//! takes some milliseconds under TCG (each request to the folder is a round trip to the host), so a job here computes
//! for at least one second if it runs alone; jobs of 92 ms spent 5 % of their time on their files.

use std::time::Duration;

use super::pace::{Pace, WARM_UP};
use crate::http::{Load, Report, SLOT};
use crate::sample::{Cell, Values, values};
use crate::second_host;
use crate::settings::{Group, Groups, Hierarchy, Journal, pin};
use crate::testbed::Testbed;
use crate::thread_times::watch;
use report::inference::variation;
use report::stats::quantile;
use vm_harness::error::{Error, Result};
use vm_harness::interrupt;

/// The file that clients fetch, named by its size in kB.
const FILE: &str = "200";

/// Number of clients: enough that a server always has a request.
const CLIENTS: usize = 8;

/// The backend's weight if it is protected from the guest.
const PROTECTED: f64 = 8.0;

/// Number of slots of the timeline in an interval of 100 ms.
const SLOTS_PER_POINT: usize = 10;

const LIMIT: Duration = Duration::from_secs(60);

/// Longest time for the last jobs to complete. The longest job takes ten seconds if it runs alone.
const LAST_JOB: Duration = Duration::from_secs(120);

/// Command that mounts VM 1's space.
pub(super) const MOUNT: &str =
    "mkdir -p /space && { mountpoint -q /space || mount -t virtiofs space /space; }";

/// Command that makes the file in the space, and the input of the jobs.
const PREPARE: &str = "mkdir -p /run/out
test -e /space/200 || cp /srv/200 /space/
test -e /run/source || seq 100000 1249999 >/run/source";

/// Slots of the space. There are so many that jobs never wait for a slot: ten for the last file of the compressor, ten
/// for the file that it writes, and one for the clients' file.
const SLOTS: &str = "slots=32";

/// Begins jobs for the given number of microseconds; they write into the given folder. Prints the number of jobs, and
/// the number of microseconds in which they were done.
const JOBS: &str = r#"begin=${EPOCHREALTIME/./} count=0
while now=${EPOCHREALTIME/./}; [ $((now - begin)) -lt "$0" ]; do
    job >"$1/job.new" && mv "$1/job.new" "$1/job" || exit 1
    count=$((count + 1))
done
echo $count $((now - begin))"#;

/// The parts of a cell.
#[derive(Clone, Copy)]
struct Mode {
    streams: bool,
    computes: bool,
    /// Whether the files are in the space, which sends them.
    space: bool,
    /// Whether the backend has a higher weight than the guest.
    protected: bool,
}

impl Mode {
    fn of(level: &str) -> Self {
        Self {
            streams: !matches!(level, "job" | "space job"),
            computes: !matches!(level, "stream" | "space stream"),
            space: level.starts_with("space"),
            protected: level == "protected",
        }
    }
}

/// Returns the job's command. A compressor reads text; a transcoder computes for each pixel, and its output has the
/// same size for every input.
fn job(level: &str) -> Result<String> {
    if level == "compress" {
        return Ok("gzip -c /run/source".to_owned());
    }
    // The numbers of steps are in the ratio of the numbers of pixels of 16:9 pictures with these numbers of lines.
    let steps = match level {
        "transcode 360" => 2_000_000,
        "transcode 720" => 8_000_000,
        "transcode 1080" => 18_000_000,
        _ => return Err(Error::Host(format!("no job is called {level}"))),
    };
    let loop_ = format!("mawk 'BEGIN {{ for (i = 0; i < {steps}; i++) s += i % 7 * i; print s }}'");
    Ok(format!("{{ {loop_} && cat /srv/70; }}"))
}

/// Measures clients, jobs, or both.
pub(super) fn hybrid(testbed: &mut Testbed, cell: &Cell, pace: Pace) -> Result<Values> {
    testbed.run_only(1)?;
    let mode = Mode::of(cell.level("mode"));
    let vm = testbed.vm(1)?;
    testbed.size_space(SLOTS)?;
    vm.check(&format!("set -e\n{MOUNT}\n{PREPARE}"), LIMIT)?;
    let mut journal = Journal::begin()?;
    for thread in testbed.guest(1) {
        pin(&mut journal, *thread, &[0])?;
    }
    if mode.protected {
        protect(testbed, &mut journal)?;
    }
    let server = match mode.space {
        true => testbed.space(),
        false => second_host::server(testbed.network("switch")?, 1, super::web::port("nginx"))?,
    };
    let load = Load {
        server,
        path: format!("/{FILE}"),
        rate: None,
        warm_up: f64::from(WARM_UP),
        seconds: f64::from(pace.seconds),
        workers: CLIENTS,
    };
    let folder = if mode.space { "/space" } else { "/run/out" };
    let (before, window) = pace.watched();
    let period = before + window;
    let micros = period.as_micros();
    let jobs = format!("job() {{ {}; }}\n{JOBS}", job(cell.level("job"))?);
    let jobs = format!(
        "exec bash -c '{}' {micros} {folder}",
        jobs.replace('\'', r"'\''")
    );
    let compute = || match mode.computes {
        true => vm.check(&jobs, period + LAST_JOB).map(Some),
        false => interrupt::sleep(period).map(|()| None),
    };
    let work = || match mode.streams {
        true => {
            let (report, done) = testbed.remote.request_beside(&load, compute)?;
            Ok((Some(report), done))
        }
        false => Ok((None, compute()?)),
    };
    let ((report, done), mut metrics) = watch(&testbed.sets(1, 1), (before, window), work)?;
    drop(journal);
    if let Some(text) = done {
        let time = completion(&text).ok_or_else(|| Error::unreadable("what jobs took", &text))?;
        metrics.extend(values(&[("job_s", time)]));
    }
    let use_of = |set: &str| metrics.get(&format!("{set}_use_pct")).copied();
    let cpu = use_of("vm1").unwrap_or(0.0) + use_of("backend").unwrap_or(0.0);
    metrics.extend(values(&[("cpu_pct", cpu)]));
    if let Some(report) = report {
        metrics.extend(figures(&report, cpu)?);
    }
    Ok(metrics)
}

/// Gives the backend a higher weight than the guest.
fn protect(testbed: &Testbed, journal: &mut Journal) -> Result<()> {
    let backend = testbed.backend();
    let group = |name, share, threads| Group {
        name,
        share,
        cap: None,
        threads,
    };
    let groups = [
        group("backend", PROTECTED, backend.as_slice()),
        group("vm1", 1.0, testbed.guest(1)),
    ];
    Groups::create(journal, &Hierarchy::find()?, &groups).map(drop)
}

/// Returns the seconds of a job.
#[expect(clippy::cast_precision_loss, reason = "microseconds of minutes")]
fn completion(text: &str) -> Option<f64> {
    let (count, micros) = text.trim().split_once(' ')?;
    let (count, micros): (u64, u64) = (count.parse().ok()?, micros.parse().ok()?);
    (count > 0).then(|| micros as f64 / 1e6 / count as f64)
}

/// Returns the throughput, its variation and its cost, if guest and backend used `cpu` percent of a CPU.
fn figures(report: &Report, cpu: f64) -> Result<Values> {
    if report.answers == 0 {
        let why = report.error.as_deref().unwrap_or("no request was sent");
        return Err(Error::Host(format!("a server answered nothing: {why}")));
    }
    let mbit = |kb_s: f64| kb_s * 8.0 / 1e3;
    let bytes = report.kb_s / report.req_s;
    let pieces: Vec<f64> = report
        .timeline
        .chunks_exact(SLOTS_PER_POINT)
        .map(|slots| {
            let answers = f64::from(slots.iter().sum::<u32>());
            #[expect(clippy::cast_precision_loss, reason = "ten")]
            let seconds = SLOT.as_secs_f64() * SLOTS_PER_POINT as f64;
            mbit(answers * bytes / seconds)
        })
        .collect();
    let mut found = values(&[
        ("mbit_s", mbit(report.kb_s)),
        ("mbit_p10", quantile(&pieces, 0.1)),
        ("mbit_p50", quantile(&pieces, 0.5)),
        ("mbit_p90", quantile(&pieces, 0.9)),
        ("cov", variation(&pieces)),
        ("cpu_s_gb", cpu / 100.0 / (report.kb_s / 1e6)),
        ("client_cpu", report.client_cpu),
    ]);
    for (mbit, milliseconds) in pieces.iter().zip((0_u32..).step_by(100)) {
        found.insert(format!("ms{milliseconds}_mbit_s"), *mbit);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_the_stream_is_100_ms() {
        // There are 2 responses of 100 kB in each 10 ms of the first half, which are 160 Mbit/s, and none in the
        // second half.
        let timeline = [[2; 50], [0; 50]].concat();
        let report = Report {
            req_s: 100.0,
            kb_s: 10_000.0,
            answers: 100,
            timeline,
            ..Report::default()
        };
        let found = figures(&report, 50.0).unwrap();
        let near = |key: &str, want: f64| assert!((found[key] - want).abs() < 1e-6, "{found:?}");
        near("mbit_s", 80.0);
        near("mbit_p90", 160.0);
        near("mbit_p10", 0.0);
        near("ms400_mbit_s", 160.0);
        near("ms500_mbit_s", 0.0);
        // Half a CPU sends 10 MB/s, so a GB takes 50 CPU-seconds.
        near("cpu_s_gb", 50.0);
        assert!(figures(&Report::default(), 50.0).is_err());
    }

    #[test]
    fn a_jobs_time_is_the_mean() {
        assert_eq!(completion("4 2000000\n"), Some(0.5));
        assert_eq!(completion("0 2000000\n"), None);
        assert_eq!(completion(""), None);
        assert!(job("compress").is_ok() && job("transcode 720").is_ok() && job("x").is_err());
    }
}
