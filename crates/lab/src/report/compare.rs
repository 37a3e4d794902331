//! Compares two runs, cell by cell.

use std::fmt;

use serde::Serialize;

use super::chart::exact;
use super::figure::{by_cell, summary};
use crate::sample::Sample;

/// The common figures of two runs, and their differences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Number of figures in both runs.
    pub both: usize,
    /// Figures whose 95 % intervals do not overlap.
    pub differ: Vec<Difference>,
}

/// A figure that differs between the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The sweep.
    pub sweep: String,
    /// The cell.
    pub cell: String,
    /// The title of the metric, with its unit.
    pub metric: String,
    /// The mean in the first run.
    pub a: f64,
    /// The mean in the second run.
    pub b: f64,
}

/// Compares the samples of two runs.
pub(super) fn compare(a: &[Sample], b: &[Sample]) -> Comparison {
    let (a, b) = (by_cell(a), by_cell(b));
    let mut found = Comparison {
        both: 0,
        differ: Vec::new(),
    };
    for (key, figures) in &a {
        let others = b.get(key).and_then(|figures| summary(figures));
        let Some((one, two)) = summary(figures).zip(others) else {
            continue;
        };
        found.both += 1;
        if one.low > two.high || two.low > one.high {
            let (sweep, cell, metric) = key;
            found.differ.push(Difference {
                sweep: sweep.clone(),
                cell: cell.to_string(),
                metric: metric.clone(),
                a: one.mean,
                b: two.mean,
            });
        }
    }
    found
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} figures are in both runs; {} differ (their 95 % intervals do not overlap):",
            self.both,
            self.differ.len()
        )?;
        for Difference {
            sweep,
            cell,
            metric,
            a,
            b,
        } in &self.differ
        {
            let (times, a, b) = (exact(b / a), exact(*a), exact(*b));
            writeln!(f, "{sweep:<10} {cell}  {metric}: {a} -> {b} (x{times})")?;
        }
        Ok(())
    }
}
