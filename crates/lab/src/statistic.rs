//! Describes how a figure is computed from the samples of a block.

use super::sample::Selector;

/// A figure of a block. It is computed from a `metric` of the cells `of`, which may be compared with the cells `to`,
/// or followed `along` a factor's levels.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "the fields' names say what the enum's text explains"
)]
pub enum Statistic {
    /// A metric of some cells.
    Value { metric: &'static str, of: Selector },
    /// Quotient of a metric in two sets of cells.
    Ratio {
        metric: &'static str,
        of: Selector,
        to: Selector,
    },
    /// Difference of a metric in two sets of cells.
    Difference {
        metric: &'static str,
        of: Selector,
        to: Selector,
    },
    /// Quotient of two metrics of the same cells.
    Metrics {
        metric: &'static str,
        to: &'static str,
        of: Selector,
    },
    /// Difference of two metrics of the same cells.
    Gap {
        metric: &'static str,
        to: &'static str,
        of: Selector,
    },
    /// Rank correlation of a metric with the order of a factor's levels: 1 if the metric always rises, -1 if it always
    /// falls.
    Trend {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// The rise of the metric from the first to the second level of a factor, minus the largest of the later rises.
    FirstStep {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// The smallest quotient of the metric at a level to the metric at the level before, along a factor.
    LeastStep {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// The metric at the last level along a factor divided by its maximum.
    Decline {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// Rank correlation of two metrics over cells.
    Correlation {
        x: &'static str,
        y: &'static str,
        of: Selector,
    },
    /// The quotient of a metric in two sets of cells, divided by the quotient of another metric in the same cells.
    Relative {
        metric: &'static str,
        than: &'static str,
        of: Selector,
        to: Selector,
    },
    /// The metric of the cells `of` at the levels `at`, divided by the metric at the levels `from`; this quotient,
    /// divided by the same quotient of the cells `to`.
    Growth {
        metric: &'static str,
        of: Selector,
        to: Selector,
        from: Selector,
        at: Selector,
    },
    /// The size from which the cells `of` are better than the cells `to`.
    Crossover {
        metric: &'static str,
        of: Selector,
        to: Selector,
        along: &'static str,
    },
    /// The size from which the cells `of` are better than the cells `to`, divided by the size from which the cells
    /// `from` are.
    Shift {
        metric: &'static str,
        of: Selector,
        from: Selector,
        to: Selector,
        along: &'static str,
    },
}

impl Statistic {
    /// Returns the cells and metrics that the statistic uses, and the factor whose levels it follows.
    #[must_use]
    pub fn names(self) -> (Vec<Selector>, Vec<&'static str>, Option<&'static str>) {
        match self {
            Self::Value { metric, of } => (vec![of], vec![metric], None),
            Self::Ratio { metric, of, to } | Self::Difference { metric, of, to } => {
                (vec![of, to], vec![metric], None)
            }
            Self::Metrics { metric, to, of } | Self::Gap { metric, to, of } => {
                (vec![of], vec![metric, to], None)
            }
            Self::Trend { metric, of, along }
            | Self::FirstStep { metric, of, along }
            | Self::LeastStep { metric, of, along }
            | Self::Decline { metric, of, along } => (vec![of], vec![metric], Some(along)),
            Self::Correlation { x, y, of } => (vec![of], vec![x, y], None),
            Self::Relative {
                metric,
                than,
                of,
                to,
            } => (vec![of, to], vec![metric, than], None),
            Self::Growth {
                metric,
                of,
                to,
                from,
                at,
            } => (vec![of, to, from, at], vec![metric], None),
            Self::Crossover {
                metric,
                of,
                to,
                along,
            } => (vec![of, to], vec![metric], Some(along)),
            Self::Shift {
                metric,
                of,
                from,
                to,
                along,
            } => (vec![of, from, to], vec![metric], Some(along)),
        }
    }
}
