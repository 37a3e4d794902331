//! Every experiment of the papers' measurements, as data.
//!
//! A row ([`Experiment`]) says what the paper showed ([`Figure`]), what it claims
//! ([`Claim`]) and what is needed to see it ([`Need`]). Rows that look at the same cells share a
//! [`Sweep`], so that nothing is measured twice.

mod beyond;
mod channels;
mod direct;
mod domains;
mod hybrid;
mod idle;
mod interception;
mod neighbours;
mod placement;
mod space_sweeps;
mod stream_sweeps;
mod streams;
mod sweep;
mod web_sweeps;
mod weights;

use super::claim::{Claim, Statistic};
use super::inference::Region;
use super::sample::Selector;
use crate::error::{Error, Result};

pub use sweep::{Factor, Scale, Sweep};

/// A row of the catalogue.
#[derive(Debug)]
pub struct Experiment {
    /// `X1` to `X15`: channels (paper 000). `M2` to `M7`: the direct channel (paper 002). `W1` to `W27`: web
    /// workloads (paper 001). `N1` to `N9`: computing and sending in one VM (paper 003).
    pub id: &'static str,
    /// Figure or table of the paper.
    pub source: &'static str,
    /// What it is about.
    pub title: &'static str,
    /// Name of the sweep whose samples it reads; empty when none is built.
    pub sweep: &'static str,
    /// What the host must have.
    pub needs: &'static [Need],
    /// Plots.
    pub figures: &'static [Figure],
    /// What the paper claims.
    pub claims: &'static [Claim],
}

impl Experiment {
    /// Nothing yet: a row says what it has.
    const EMPTY: Self = Self {
        id: "",
        source: "",
        title: "",
        sweep: "",
        needs: &[],
        figures: &[],
        claims: &[],
    };
}

/// Something an experiment cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// CPUs the run may use.
    Cpus(usize),
    /// A second host; emulated by a network namespace behind a shaped link.
    SecondHost,
    /// CPUs that virtual CPUs and backend should have; with fewer they share.
    Spread(usize),
    /// CPU weights and caps by cgroup.
    Groups,
    /// What the direct channel's module is built with.
    Module,
    /// Energy; CPU time stands in for it.
    Energy,
    /// Something that is not there on any host yet, and why.
    Absent(&'static str),
}

/// A plot: metrics over the levels of one factor, a curve for each metric and each combination
/// of the levels of others.
#[derive(Debug)]
pub struct Figure {
    /// Below which number the paper has it.
    pub source: &'static str,
    /// Title.
    pub title: &'static str,
    /// The factor on the horizontal axis.
    pub x: &'static str,
    /// The factors that make a curve.
    pub series: &'static [&'static str],
    /// The cells it shows.
    pub of: Selector,
    /// Keys of the metrics.
    pub metrics: &'static [&'static str],
    /// The paper's own numbers, where it gives any.
    pub paper: &'static [Curve],
}

impl Figure {
    /// Nothing yet: a row says what its figures have.
    const EMPTY: Self = Self {
        source: "",
        title: "",
        x: "",
        series: &[],
        of: &[],
        metrics: &[],
        paper: &[],
    };
}

/// A curve of a paper.
#[derive(Debug)]
pub struct Curve {
    /// Name.
    pub name: &'static str,
    /// Level on the horizontal axis and value.
    pub points: &'static [(&'static str, f64)],
}

/// Thread sets, the beginnings of their metrics' keys.
pub const SETS: [&str; 5] = ["vm1", "vm2", "idle", "guests", "backend"];

/// What a metric's key stands for: `KEY`, `vm1_KEY`, `backend_KEY`.
const METRICS: [(&str, &str, &str); 60] = [
    ("mbit_s", "throughput received", "Mbit/s"),
    ("loss_pct", "lost", "%"),
    ("trans_s", "transactions", "1/s"),
    ("udp_trans_s", "transactions over UDP", "1/s"),
    ("udp_p50_us", "round trip over UDP, median", "µs"),
    ("udp_p99_us", "round trip over UDP, p99", "µs"),
    ("udp_p999_us", "round trip over UDP, p99.9", "µs"),
    ("p50_us", "round trip, median", "µs"),
    ("p99_us", "round trip, p99", "µs"),
    ("p999_us", "round trip, p99.9", "µs"),
    ("lookup_ns", "a look-up", "ns"),
    ("lookup_pct", "look-ups, of the time between messages", "%"),
    ("use_pct", "on a CPU", "%"),
    ("wait_pct", "waiting for a CPU", "%"),
    ("block_pct", "blocked", "%"),
    ("exec_s", "executions", "1/s"),
    ("us_exec", "CPU time per execution", "µs"),
    ("switches_s", "context switches", "1/s"),
    ("vm_switches_s", "switches between VMs", "1/s"),
    ("s_gb", "CPU time for each GB", "s/GB"),
    (
        "cpu_s_gb",
        "CPU time of guests and backend for each GB",
        "s/GB",
    ),
    ("bells", "doorbells for each packet", ""),
    (
        "instructions_kb",
        "guests' instructions for each KB",
        "1/KB",
    ),
    ("switches_mb", "context switches per MB", "1/MB"),
    ("cov", "coefficient of variation", ""),
    ("worst", "worst over median", ""),
    ("vms", "VMs at once", ""),
    ("recovery_ms", "time to recover", "ms"),
    ("slow_fast", "switches per MB, slowest over fastest run", ""),
    ("req_s", "requests served", "1/s"),
    ("kb_s", "served", "kB/s"),
    ("ratio", "aggregated throughput ratio", ""),
    ("reply_ms", "reply time, mean", "ms"),
    ("reply_p50_ms", "reply time, median", "ms"),
    ("reply_p99_ms", "reply time, p99", "ms"),
    ("reply_p999_ms", "reply time, p99.9", "ms"),
    ("transfer_ms", "transfer time, mean", "ms"),
    ("create_s", "creation time", "s"),
    ("start_s", "start time", "s"),
    ("first_s", "time to its first answer", "s"),
    ("pages_s", "pages (bytes/4096)", "1/s"),
    ("pages_exec", "pages per execution", ""),
    ("lost", "area of the dip", "requests"),
    ("dip_s", "area of the dip", "s"),
    ("throttled_pct", "held back by the cap", "%"),
    ("copy_pct", "copying", "%"),
    ("message_pct", "work for each message", "%"),
    ("driver_pct", "drivers", "%"),
    ("hits", "ticks of the guest's profile", ""),
    ("mbit_p10", "throughput of 100 ms, 10 % are lower", "Mbit/s"),
    ("mbit_p50", "throughput of 100 ms, median", "Mbit/s"),
    (
        "mbit_p90",
        "throughput of 100 ms, 10 % are higher",
        "Mbit/s",
    ),
    ("job_s", "completion of a job", "s"),
    ("cpu_pct", "CPU of guest and backend", "%"),
    ("slots", "slots that it may use", ""),
    ("used", "slots in use", ""),
    ("mib", "memory of the host", "MiB"),
    ("idle_slots", "slots without jobs", ""),
    ("idle_mib", "memory without jobs", "MiB"),
    ("write_ms", "a job's file written", "ms"),
];

/// Title and unit of a metric.
#[must_use]
pub fn metric(key: &str) -> (String, &'static str) {
    let (part, rest) = key.split_once('_').unwrap_or_default();
    let (part, rest) = if SETS.contains(&part) {
        (part, rest)
    } else {
        ("", key)
    };
    let (rest, varies) = rest
        .strip_suffix("_cov")
        .map_or((rest, false), |base| (base, true));
    let known = METRICS.iter().find(|known| known.0 == rest);
    let (title, unit) = known.map_or((rest, ""), |known| (known.1, known.2));
    let title = [part, title].join(" ").trim().to_owned();
    if varies {
        (format!("{title}, coefficient of variation"), "")
    } else {
        (title, unit)
    }
}

/// Every experiment, in the order of the papers.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    channels::ROWS
        .iter()
        .chain(interception::ROWS)
        .chain(placement::ROWS)
        .chain(streams::ROWS)
        .chain(beyond::ROWS)
        .chain(direct::ROWS)
        .chain(idle::ROWS)
        .chain(domains::ROWS)
        .chain(neighbours::ROWS)
        .chain(weights::ROWS)
        .chain(hybrid::ROWS)
}

/// The experiment called `id`, in any case.
///
/// # Errors
/// There is none; the error names the nearest.
pub fn find(id: &str) -> Result<&'static Experiment> {
    let wanted = id.to_uppercase();
    all().find(|row| row.id == wanted).ok_or_else(|| {
        let near = all().max_by(|a, b| {
            let likeness = |row: &Experiment| strsim::jaro_winkler(row.id, &wanted);
            likeness(a).total_cmp(&likeness(b))
        });
        let near = near.map_or("X1", |row| row.id);
        Error::Host(format!(
            "there is no experiment {id}; the nearest is {near}. `vicinity lab list` names them all"
        ))
    })
}

/// The sweep whose VMs are others than those of all other sweeps: their instructions are counted.
pub const INSTRUCTIONS: &str = "direct-instructions";

/// Every sweep, in the order in which they are run: the A/A run first, and last the one that has VMs
/// of its own.
pub fn sweeps() -> impl Iterator<Item = &'static Sweep> {
    let shared = stream_sweeps::SWEEPS.iter().chain(web_sweeps::SWEEPS);
    let shared = shared.chain(space_sweeps::SWEEPS);
    shared.chain([&stream_sweeps::COUNTED])
}

/// The sweep of this name.
#[must_use]
pub fn sweep(name: &str) -> Option<&'static Sweep> {
    sweeps().find(|sweep| sweep.name == name)
}

/// Two VMs on CPUs of their own, and others for the backend, as in the paper.
const APART: &[Need] = &[Need::Cpus(2), Need::Spread(3)];

const fn claim(
    text: &'static str,
    paper: &'static str,
    statistic: Statistic,
    expects: Region,
) -> Claim {
    Claim {
        text,
        paper,
        statistic,
        expects,
    }
}

const fn ratio(metric: &'static str, of: Selector, to: Selector) -> Statistic {
    Statistic::Ratio { metric, of, to }
}

const fn difference(metric: &'static str, of: Selector, to: Selector) -> Statistic {
    Statistic::Difference { metric, of, to }
}

const fn trend(metric: &'static str, of: Selector, along: &'static str) -> Statistic {
    Statistic::Trend { metric, of, along }
}

const fn value(metric: &'static str, of: Selector) -> Statistic {
    Statistic::Value { metric, of }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
