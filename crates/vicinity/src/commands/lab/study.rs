//! `vicinity lab`: repeats the measurement studies of the papers on this host.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use lab::catalogue::{self, Scale};
use lab::http::{self, Load};
use lab::probe::Probe;
use lab::run::{self, Options};
use lab::testbed::Paths;
use serde::Serialize;
use vm_harness::progress::Progress;

use crate::commands::demo;
use crate::commands::failure::Failure;
use crate::commands::output::as_json;

/// Default folder for the results of a run.
pub(crate) const FOLDER: &str = "target/study";

/// What this host can run.
#[derive(Debug, Serialize)]
struct HostCapabilities {
    experiments: Vec<Experiment>,
    /// What each version of control groups can do.
    control_groups: String,
}

/// Whether it can run an experiment.
#[derive(Debug, Serialize)]
struct Experiment {
    id: &'static str,
    title: &'static str,
    /// The paper, and where in it.
    source: &'static str,
    ability: &'static str,
    /// What stands in for something, or what is missing; empty where nothing is.
    reason: String,
}

/// Lists every experiment, and whether this host can run it.
pub(crate) fn list(json: bool) -> String {
    let probe = Probe::of_this_host();
    let experiments = catalogue::all().map(|row| {
        let ability = probe.judge(row);
        Experiment {
            id: row.id,
            title: row.title,
            source: row.source,
            ability: ability.word(),
            reason: ability.reason().to_owned(),
        }
    });
    let found = HostCapabilities {
        experiments: experiments.collect(),
        control_groups: probe.versions,
    };
    match json {
        true => as_json(&found),
        false => found.to_string(),
    }
}

impl fmt::Display for HostCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.experiments {
            let Experiment { id, ability, .. } = row;
            writeln!(f, "{id:<4} {ability:<12}  {}  ({})", row.title, row.source)?;
            if !row.reason.is_empty() {
                writeln!(f, "{:<18} -> {}", "", row.reason)?;
            }
        }
        writeln!(f, "\n{}", self.control_groups)
    }
}

/// Runs experiments (all if none is named), and writes the report.
pub(crate) fn start(
    ids: &[String],
    only: &[String],
    scale: Scale,
    minutes: Option<u32>,
    seed: Option<u64>,
    output: &Path,
) -> Result<String, Failure> {
    run::wanted(ids, only, scale).map_err(|error| Failure::Usage(error.to_string()))?;
    vm_harness::interrupt::install()?;
    let options = Options {
        place: paths_for(output)?,
        output: output.to_owned(),
        ids: ids.to_vec(),
        only: only.to_vec(),
        scale,
        minutes,
        seed,
    };
    run::begin(&options, &Progress::start())?;
    report(output)
}

/// Completes an interrupted run, and writes the report.
pub(crate) fn resume(output: &Path) -> Result<String, Failure> {
    vm_harness::interrupt::install()?;
    run::resume(&paths_for(output)?, output, &Progress::start())?;
    report(output)
}

/// Writes a run's report from its samples.
pub(crate) fn report(output: &Path) -> Result<String, Failure> {
    Ok(lab::report::write(output)?)
}

/// Compares two runs side by side.
pub(crate) fn compare(a: &Path, b: &Path, json: bool) -> Result<String, Failure> {
    let found = lab::report::compare(a, b)?;
    Ok(match json {
        true => as_json(&found),
        false => found.to_string(),
    })
}

/// Runs the HTTP client until standard input ends. Returns its report as JSON.
pub(crate) fn request(load: &Load) -> String {
    let input = std::thread::spawn(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let report = http::run(load, || !input.is_finished());
    serde_json::to_string(&report).unwrap_or_default()
}

fn paths_for(output: &Path) -> Result<Paths, Failure> {
    Ok(Paths {
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        cache: PathBuf::from(demo::FOLDER).join("lab"),
        logs: output.join("logs"),
    })
}
