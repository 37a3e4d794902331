//! `vicinity bench space`: measures natively how the host sends files for VMs, against nginx.
//!
//! Theory of operation. The process of a space and nginx serve the same files on the
//! same CPU (`server`). wrk, on the other CPU, fetches the files over loopback (`wrk`), and only one of the two servers
//! has work at a time. No VM takes part: the files are published before the space's process starts, as after a
//! restart. A round fetches each length from one server and then from the other, and the next round does so in the
//! reverse order. The result is the median over the rounds of the ratio of a pair (`report`), beside the CPU time of
//! the servers, which differs also if wrk is the slower side. Then 1,000 clients request a long file from each server,
//! and read little of it (`slow`).

mod report;
mod server;
mod slow;
mod wrk;

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};

use crate::output;
use crate::priority::Priority;
use crate::requirements;
use server::Server;

pub use self::report::{Cell, Figures, Kind, Report, Sample, SlowSample};

/// Lengths of files in bytes: below and above the shortest one with a target.
pub const LENGTHS: [u32; 4] = [4 << 10, 64 << 10, 1 << 20, 16 << 20];

/// Longest file: several of them are in the space's memory, and in nginx's page cache.
const MAX_LENGTH: u32 = 64 << 20;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`crate::ROUNDS`].
    pub rounds: u32,
    /// Lengths of files in bytes.
    pub lengths: Vec<u32>,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// File of the report as JSON; its folder is made.
    pub output: PathBuf,
}

/// Measures a space's server against nginx, writes the report and returns it. This takes about half
/// a minute a round.
///
/// # Errors
/// A program is missing or fails, the machine is too small, or a signal arrived. All programs that the
/// benchmark started have been stopped by then.
pub fn space(options: &Options, progress: &Progress) -> Result<Report> {
    interrupt::install()?;
    check(options)?;
    scope::sweep_and_log(progress)?;
    let folder = RunFolder::new()?;
    let machine = Machine::describe()?;
    let nginx = server::nginx_version()?;
    allow_sockets()?;
    let first = Priority::raise();
    let (samples, slow) = rounds(options, folder.path(), progress)?;
    drop(first);
    let report = Report::new(machine, nginx, options.rounds, samples, slow);
    output::write(&report, &options.output)?;
    Ok(report)
}

fn check(options: &Options) -> Result<()> {
    let Options { lengths, .. } = options;
    requirements::root("pins programs and goes before others")?;
    requirements::two_cpus("a CPU for the clients and one for the server")?;
    let complaint = if options.rounds == 0 || lengths.is_empty() {
        "nothing to measure: give at least one round and one length"
    } else if lengths
        .iter()
        .any(|length| !(1..=MAX_LENGTH).contains(length))
    {
        "a file may have 1 byte to 64 MiB here"
    } else if ![server::NGINX, wrk::PROGRAM]
        .iter()
        .all(|tool| Path::new(tool).exists())
    {
        "nginx or wrk is not installed: run `scripts/setup demo bench` as root"
    } else {
        return Ok(());
    };
    Err(Error::Host(complaint.to_owned()))
}

/// Raises the limit of open files for this process and the servers that it starts: each slow client needs a socket.
fn allow_sockets() -> Result<()> {
    let most = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nofile, limit).context(|| "raise the limit of open files".to_owned())
}

fn rounds(
    options: &Options,
    folder: &Path,
    progress: &Progress,
) -> Result<(Vec<Sample>, Vec<SlowSample>)> {
    write_files(&options.lengths, &folder.join(server::FILES))?;
    let servers = [
        Server::vicinity(&options.vicinity, folder)?,
        Server::nginx(folder)?,
    ];
    let (mut samples, mut slow) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        // The order is reversed in every other round.
        let turns = || {
            let first = usize::from(round % 2 == 0);
            [first, 1 - first]
                .into_iter()
                .filter_map(|at| servers.get(at))
        };
        for &length in &options.lengths {
            for server in turns() {
                interrupt::check()?;
                let figures = wrk::fetch(server, length, folder)?;
                let sample = Sample {
                    round,
                    length,
                    server: server.kind,
                    figures,
                };
                progress.step(&format!("round {round} of {}: {sample}", options.rounds));
                samples.push(sample);
            }
        }
        let longest = options.lengths.iter().copied().max().unwrap_or(0);
        for server in turns() {
            let sample = slow::measure(server, round, longest)?;
            progress.step(&format!("round {round} of {}: {sample}", options.rounds));
            slow.push(sample);
        }
    }
    Ok((samples, slow))
}

/// Makes a file of each length and names it by the length.
fn write_files(lengths: &[u32], folder: &Path) -> Result<()> {
    fs::create_dir(folder).context(|| format!("make {}", folder.display()))?;
    let mut dice = fastrand::Rng::with_seed(1);
    for length in lengths {
        let path = folder.join(length.to_string());
        let bytes: Vec<u8> = (0..*length).map(|_| dice.u8(..)).collect();
        fs::write(&path, bytes).context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
