//! A run's report: `report.html`, `report.md`, `cells.csv`, beside the raw samples.

mod axis;
mod chart;
mod compare;
mod figure;
mod page;
mod text;

use std::fs;
use std::path::Path;

use super::catalogue::{self, Experiment};
use super::distance;
use super::manifest::{self, Manifest};
use super::probe::{Ability, Probe};
use super::sample::Sample;
use super::verdict::{self, Finding};
use crate::error::{Context, Result};

pub use compare::{Comparison, Difference};

/// A run, judged.
struct Report {
    manifest: Manifest,
    samples: Vec<Sample>,
    rows: Vec<(&'static Experiment, Ability)>,
    findings: Vec<Finding>,
}

impl Report {
    fn of(output: &Path) -> Result<Self> {
        let manifest = manifest::load(output)?;
        let samples = manifest::samples(output)?;
        let probe = Probe::look();
        let rows: Vec<&'static Experiment> = catalogue::all()
            .filter(|row| manifest.experiments.iter().any(|id| id == row.id))
            .collect();
        let findings = verdict::judge(&rows, &samples, manifest.scale, &probe);
        let rows = rows
            .into_iter()
            .map(|row| (row, probe.judge(row)))
            .collect();
        Ok(Self {
            manifest,
            samples,
            rows,
            findings,
        })
    }

    /// What the A/A run says, in words.
    fn noise(&self) -> String {
        let found = verdict::noise(&self.samples, self.manifest.scale);
        if found.blocks == 0 {
            return "no A/A run: nothing says what doing the same twice looks like here".to_owned();
        }
        let percent = |log: f64| (log.abs().exp() - 1.0) * 100.0;
        let distance = distance::summary(&self.samples).unwrap_or_default();
        let text = format!(
            "A/A: the same stream, measured twice in each of {} blocks under two names, differed by {:.1} % on average; the 95 % interval reaches to {:.1} %. A ratio no further from one than that is NOT SIGNIFICANT.",
            found.blocks,
            percent(found.estimate.ln()),
            percent(verdict::gate(&found)),
        );
        format!("{text} {distance}").trim_end().to_owned()
    }
}

/// Write the report of the run in `output`; returns the verdicts in a few lines.
///
/// # Errors
/// There is no run, or the folder cannot be written.
pub fn write(output: &Path) -> Result<String> {
    let report = Report::of(output)?;
    for (name, text) in [
        ("report.html", page::page(&report)),
        ("report.md", text::markdown(&report)),
        ("cells.csv", text::csv(&report.samples)),
    ] {
        let path = output.join(name);
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    }
    let failed = report
        .samples
        .iter()
        .filter(|sample| sample.failed.is_some())
        .count();
    Ok(format!(
        "{} samples, {failed} failed. {} claims: {}.\n{}\nReport: {}\n",
        report.samples.len(),
        report.findings.len(),
        text::tally(&report.findings),
        report.noise(),
        output.join("report.html").display()
    ))
}

/// Compare two runs, cell by cell.
///
/// # Errors
/// One of them is no run.
pub fn compare(a: &Path, b: &Path) -> Result<Comparison> {
    manifest::load(a)?;
    manifest::load(b)?;
    Ok(compare::compare(
        &manifest::samples(a)?,
        &manifest::samples(b)?,
    ))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
