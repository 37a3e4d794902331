//! A sample has a cell's figures in one block, and is one line of NDJSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A combination of levels, one of each factor.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell(pub BTreeMap<String, String>);

/// Some of a cell's levels, by which a claim or a curve selects cells.
pub type Selector = &'static [(&'static str, &'static str)];

/// Figures by the metric's key.
pub type Values = BTreeMap<String, f64>;

/// One measurement of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The sweep that the cell belongs to.
    pub sweep: String,
    /// Number of the block: cells of one block were measured next to each other.
    pub block: u32,
    /// The cell.
    pub cell: Cell,
    /// The cell's figures; none if the measurement failed.
    #[serde(default)]
    pub values: Values,
    /// The reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Nanoseconds that a cache line took from CPU 0 to CPU 1 and back, just before the measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_ns: Option<f64>,
    /// Seconds from the beginning of the run to the end of the measurement.
    pub at: f64,
}

impl Cell {
    /// Returns the cell's level of a factor; empty if the cell has none.
    #[must_use]
    pub fn level(&self, factor: &str) -> &str {
        self.0.get(factor).map_or("", String::as_str)
    }

    /// Returns the number of bytes of a level that is a size: `64`, `4K`.
    #[must_use]
    pub fn size(&self, factor: &str) -> u32 {
        size(self.level(factor)).unwrap_or(0)
    }

    /// Whether the cell has all these levels.
    #[must_use]
    pub fn matches(&self, selector: &[(&str, &str)]) -> bool {
        selector
            .iter()
            .all(|(factor, level)| self.level(factor) == *level)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts: Vec<String> = self
            .0
            .iter()
            .map(|(factor, level)| format!("{factor}={level}"))
            .collect();
        f.write_str(&parts.join(" "))
    }
}

/// Returns the figures for a sample: rounded, and without infinite values and NaN, which JSON cannot represent.
#[must_use]
pub fn kept(values: Values) -> Values {
    let finite = values.into_iter().filter(|(_, figure)| figure.is_finite());
    finite.map(|(key, figure)| (key, rounded(figure))).collect()
}

/// Rounds a figure to six significant digits: no measurement is more precise, and files stay small.
#[must_use]
pub fn rounded(figure: f64) -> f64 {
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

/// Bytes that a level names: `64`, `4K`, `16K`.
#[must_use]
pub fn size(level: &str) -> Option<u32> {
    match level.strip_suffix('K') {
        Some(kib) => kib.parse::<u32>().ok()?.checked_mul(1024),
        None => level.parse().ok(),
    }
}

/// Converts a list of metrics to the map of a sample.
pub(crate) fn values(list: &[(&str, f64)]) -> Values {
    list.iter()
        .map(|(key, value)| ((*key).to_owned(), *value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_ndjson_comes_back() {
        let cell = Cell([("size".to_owned(), "4K".to_owned())].into());
        let sample = Sample {
            sweep: "udp".into(),
            block: 2,
            cell,
            values: [("mbit_s".to_owned(), 1.5)].into(),
            failed: None,
            line_ns: Some(44.5),
            at: 3.0,
        };
        let line = serde_json::to_string(&sample).unwrap();
        assert!(!line.contains('\n') && !line.contains("failed"));
        assert_eq!(serde_json::from_str::<Sample>(&line).unwrap(), sample);
        assert_eq!(sample.cell.size("size"), 4096);
    }

    #[test]
    fn what_is_no_number_costs_no_sample() {
        let measured = [("req_s", 0.0), ("fair", f64::INFINITY), ("cov", f64::NAN)];
        let values = kept(measured.map(|(key, x)| (key.to_owned(), x)).into());
        let sample = Sample {
            sweep: "weights".into(),
            block: 1,
            cell: Cell::default(),
            values,
            failed: None,
            line_ns: None,
            at: 0.0,
        };
        let line = serde_json::to_string(&sample).unwrap();
        let read: Sample = serde_json::from_str(&line).unwrap();
        assert_eq!(read.values, [("req_s".to_owned(), 0.0)].into());
    }

    #[test]
    fn figures_have_six_digits() {
        for (figure, want) in [
            (1_234.567_89, 1_234.57),
            (0.0, 0.0),
            (-12.345_678, -12.3457),
        ] {
            assert!((rounded(figure) - want).abs() < 1e-12, "{figure}");
        }
        assert!(rounded(f64::NAN).is_nan());
    }

    #[test]
    fn a_cell_matches_the_factors_it_has() {
        let cell = Cell(
            [
                ("a".to_owned(), "1".to_owned()),
                ("b".to_owned(), "2".to_owned()),
            ]
            .into(),
        );
        assert!(cell.matches(&[("a", "1")]) && cell.matches(&[]));
        assert!(!cell.matches(&[("a", "2")]) && !cell.matches(&[("c", "1")]));
    }
}
