//! `vicinity lab`: the measurement studies of the papers, run again here.

mod lookups;
mod residents;

use std::path::{Path, PathBuf};

use lab::progress::Progress;
use lab::study::catalogue::{self, Scale};
use lab::study::http::{self, Load};
use lab::study::probe::Probe;
use lab::study::run::{self, Options};
use lab::study::world::Place;

use crate::demo;
use crate::failure::Failure;

pub(crate) use lookups::time as time_lookups;
pub(crate) use residents::fill;

/// Where a run's results are put, unless it is told.
pub(crate) const FOLDER: &str = "target/study";

/// Every experiment, and whether this host can run it.
pub(crate) fn list() -> String {
    let probe = Probe::look();
    let lines = catalogue::all().map(|row| {
        let ability = probe.judge(row);
        let mut line = format!(
            "{:<4} {:<12}  {}  ({})\n",
            row.id,
            ability.word(),
            row.title,
            row.source
        );
        if !ability.reason().is_empty() {
            line += &format!("{:<18} -> {}\n", "", ability.reason());
        }
        line
    });
    lines.collect::<String>() + &format!("\n{}\n", probe.versions)
}

/// Run experiments (all when none is named), and write the report.
pub(crate) fn start(
    ids: &[String],
    only: &[String],
    scale: Scale,
    minutes: Option<u32>,
    seed: Option<u64>,
    output: &Path,
) -> Result<String, Failure> {
    run::wanted(ids, only, scale).map_err(|error| Failure::Usage(error.to_string()))?;
    lab::interrupt::install()?;
    let options = Options {
        place: place(output)?,
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

/// Complete a run that was cut short, and write the report.
pub(crate) fn resume(output: &Path) -> Result<String, Failure> {
    lab::interrupt::install()?;
    run::resume(&place(output)?, output, &Progress::start())?;
    report(output)
}

/// Write a run's report from its samples.
pub(crate) fn report(output: &Path) -> Result<String, Failure> {
    Ok(lab::study::report::write(output)?)
}

/// Two runs side by side.
pub(crate) fn compare(a: &Path, b: &Path) -> Result<String, Failure> {
    Ok(lab::study::report::compare(a, b)?)
}

/// The HTTP client: its report as JSON.
pub(crate) fn request(load: &Load) -> String {
    serde_json::to_string(&http::run(load)).unwrap_or_default()
}

fn place(output: &Path) -> Result<Place, Failure> {
    Ok(Place {
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        cache: PathBuf::from(demo::FOLDER).join("lab"),
        logs: output.join("logs"),
    })
}
