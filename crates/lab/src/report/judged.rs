//! A run with its verdicts.

use std::path::Path;

use vm_harness::error::Result;

use crate::catalogue::{self, Experiment};
use crate::cpu_distance;
use crate::manifest::{self, Manifest};
use crate::probe::{Ability, Probe};
use crate::sample::Sample;
use crate::verdict::{self, Finding};

/// A run with its verdicts.
pub(super) struct Report {
    pub(super) manifest: Manifest,
    pub(super) samples: Vec<Sample>,
    pub(super) rows: Vec<(&'static Experiment, Ability)>,
    pub(super) findings: Vec<Finding>,
}

impl Report {
    pub(super) fn of(output: &Path) -> Result<Self> {
        let manifest = manifest::load(output)?;
        let samples = manifest::samples(output)?;
        let probe = Probe::of_this_host();
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

    /// Returns the result of the A/A run, in words.
    pub(super) fn noise(&self) -> String {
        let found = verdict::noise(&self.samples, self.manifest.scale);
        if found.blocks == 0 {
            return "no A/A run: nothing says what doing the same twice looks like here".to_owned();
        }
        let percent = |log: f64| (log.abs().exp() - 1.0) * 100.0;
        let distance = cpu_distance::summary(&self.samples).unwrap_or_default();
        let text = format!(
            "A/A: the same stream, measured twice in each of {} blocks under two names, differed by {:.1} % on average; the 95 % interval reaches to {:.1} %. A ratio no further from one than that is NOT SIGNIFICANT.",
            found.blocks,
            percent(found.estimate.ln()),
            percent(verdict::noise_threshold(&found)),
        );
        format!("{text} {distance}").trim_end().to_owned()
    }
}
