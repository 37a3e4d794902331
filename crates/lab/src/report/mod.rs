//! Writes a run's report beside the raw samples: `report.html`, `report.md`, `cells.csv`.

mod axis;
mod chart;
mod compare;
mod figure;
mod judged;
mod page;
mod series;
mod text;

use std::fs;
use std::path::Path;

use super::manifest;
use vm_harness::error::{Context, Result};

use judged::Report;

pub use compare::{Comparison, Difference};

/// Writes the report of the run in `output`; returns the verdicts in a few lines.
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

/// Compares two runs, cell by cell.
///
/// # Errors
/// One of the folders has no run.
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
