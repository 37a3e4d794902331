//! Results of the demo: samples, their summary, and the table.

use std::fmt;

use serde::{Deserialize, Serialize};

use report::stats;
use vm_harness::accel::Accel;
use vm_harness::machine::Machine;

use super::metric::{METRICS, Metric};
use super::options::Durations;
use super::sample::{Described, Sample};

/// All results of a run, as written to `result.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DemoResult {
    /// The machine.
    pub machine: Machine,
    /// The accelerator of the guests.
    pub accelerator: Accel,
    /// Kernel of the guests.
    pub guest_kernel: String,
    /// Length of each measurement.
    pub durations: Durations,
    /// What the CPU figure means.
    pub cpu_definition: String,
    /// The channels: first the baseline, then the channel that is compared with it.
    pub channels: [Described; 2],
    /// One line for each metric, in the order of [`METRICS`].
    pub summary: Vec<Summary>,
    /// Every sample, in the order of measurement.
    pub samples: Vec<Sample>,
    /// Duration of the whole run, seconds.
    pub seconds: f64,
}

/// Summary of a metric.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Summary {
    /// [`Metric::key`].
    pub metric: String,
    /// Unit.
    pub unit: String,
    /// Whether a higher value is better.
    pub higher_is_better: bool,
    /// Median of the baseline's samples.
    pub base_median: f64,
    /// Median of the other channel's samples.
    pub other_median: f64,
    /// Quartiles of the rounds' ratios of the other channel to the baseline; `null` if the metric has no ratio.
    pub ratio: Option<Ratio>,
}

/// Quartiles of the rounds' ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Their lower quartile.
    pub low: f64,
    /// Their median.
    pub median: f64,
    /// Their upper quartile.
    pub high: f64,
}

/// Verdict of the rounds about a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The middle half of the rounds is better than the baseline.
    Better,
    /// The middle half of the rounds is worse.
    Worse,
    /// The rounds disagree.
    Unclear,
}

impl Summary {
    /// Returns the ratio as text: median and quartiles.
    #[must_use]
    pub fn ratio_text(&self) -> String {
        self.ratio.map_or_else(
            || "–".to_owned(),
            |r| format!("{:.2} ({:.2} to {:.2})", r.median, r.low, r.high),
        )
    }

    /// Returns the verdict of the rounds; `None` if the metric has no ratio.
    #[must_use]
    pub fn verdict(&self) -> Option<Verdict> {
        let ratio = self.ratio?;
        let (above, below) = (ratio.low > 1.0, ratio.high < 1.0);
        Some(match (above, below, self.higher_is_better) {
            (true, _, true) | (_, true, false) => Verdict::Better,
            (true, _, false) | (_, true, true) => Verdict::Worse,
            _ => Verdict::Unclear,
        })
    }
}

impl DemoResult {
    /// Returns a channel's samples of a metric, in the order of the rounds.
    #[must_use]
    pub fn values(&self, channel: &Described, metric: &Metric) -> Vec<f64> {
        values(&self.samples, channel, metric)
    }
}

fn values(samples: &[Sample], channel: &Described, metric: &Metric) -> Vec<f64> {
    let ours = samples.iter().filter(|s| s.channel == channel.name);
    ours.map(metric.of).collect()
}

/// Summarises the samples.
pub(super) fn summarise(channels: &[Described; 2], samples: &[Sample]) -> Vec<Summary> {
    let summary = |metric: &Metric| {
        let [base, other] = channels
            .each_ref()
            .map(|channel| values(samples, channel, metric));
        let ratios = stats::paired_ratios(&base, &other);
        let ratio = Ratio {
            low: stats::quantile(&ratios, 0.25),
            median: stats::median(&ratios),
            high: stats::quantile(&ratios, 0.75),
        };
        let usable = metric.has_ratio && ratios.iter().all(|ratio| ratio.is_finite());
        Summary {
            metric: metric.key.to_owned(),
            unit: metric.unit.to_owned(),
            higher_is_better: metric.higher_is_better,
            base_median: stats::median(&base),
            other_median: stats::median(&other),
            ratio: usable.then_some(ratio),
        }
    };
    METRICS.iter().map(summary).collect()
}

impl fmt::Display for DemoResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [base, other] = self
            .channels
            .each_ref()
            .map(|channel| channel.name.as_str());
        let ratio = format!("{other} / {base}");
        let head = format!(
            "{:22}{base:>9}{other:>9}  {:8}{ratio:>22}  better is",
            "", ""
        );
        writeln!(f, "{head}\n{}", "-".repeat(head.len()))?;
        for (metric, line) in METRICS.iter().zip(&self.summary) {
            let digits = metric.digits;
            writeln!(
                f,
                "{:22}{:>9.digits$}{:>9.digits$}  {:8}{:>22}  {}",
                metric.title,
                line.base_median,
                line.other_median,
                metric.unit,
                line.ratio_text(),
                metric.better(),
            )?;
        }
        write!(
            f,
            "Medians of {} rounds. The ratio is the median of the rounds' own ratios, with their \
             quartiles.\nThe VMs ran under {}.",
            self.samples.len() / 2,
            self.accelerator.title()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::example::example;
    use super::*;

    #[test]
    fn ratios_are_taken_within_rounds() {
        let result = example();
        let ratios = result.summary.iter().map(|s| s.ratio.map(|r| r.median));
        let want = [Some(2.0), Some(0.5), Some(0.5), Some(0.5), Some(2.0), None];
        assert_eq!(ratios.collect::<Vec<_>>(), want);
        assert!((result.summary[0].base_median - 750.0).abs() < 1e-9);
    }

    #[test]
    fn a_zero_baseline_has_no_ratio() {
        let mut result = example();
        let all = result.samples.iter_mut();
        all.for_each(|s| s.tcp.mbit_s = 0.0);
        let summary = summarise(&result.channels, &result.samples);
        assert_eq!((summary[0].ratio, summary[0].verdict()), (None, None));
    }

    #[test]
    fn rounds_that_disagree_give_no_verdict() {
        let mut line = example().summary[0].clone();
        assert_eq!(line.verdict(), Some(Verdict::Better));
        let mut quartiles = |low, high| {
            line.ratio = Some(Ratio {
                low,
                median: 1.1,
                high,
            });
            line.verdict()
        };
        assert_eq!(quartiles(0.9, 1.2), Some(Verdict::Unclear));
        assert_eq!(quartiles(0.8, 0.9), Some(Verdict::Worse));
    }

    #[test]
    fn the_table_says_which_way_is_better() {
        let table = example().to_string();
        let line = |start: &str| {
            table
                .lines()
                .find(|l| l.starts_with(start))
                .unwrap()
                .to_owned()
        };
        assert!(
            line("TCP throughput").ends_with("2.00 (2.00 to 2.00)  higher"),
            "{table}"
        );
        assert!(
            line("Round trip, p99").ends_with("0.50 (0.50 to 0.50)  lower"),
            "{table}"
        );
    }

    #[test]
    fn the_json_can_be_read_back() {
        let text = serde_json::to_string(&example()).unwrap();
        let back: DemoResult = serde_json::from_str(&text).unwrap();
        assert_eq!(back.samples.len(), 4);
    }
}
