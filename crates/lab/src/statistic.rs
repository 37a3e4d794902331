//! The figure of a block that a claim is about.

use super::sample::Selector;

/// A figure of a block: of a `metric` in the cells `of`, compared with those of `to`, `along` a
/// factor's levels.
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
    /// Rank correlation of a metric with the order of a factor's levels: 1 rising, -1 falling.
    Trend {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// The first step along a factor minus the largest of the others.
    FirstStep {
        metric: &'static str,
        of: Selector,
        along: &'static str,
    },
    /// The smallest quotient of two neighbouring levels' values along a factor.
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
    /// The quotient of a metric in two sets of cells, divided by that of another metric there.
    Relative {
        metric: &'static str,
        than: &'static str,
        of: Selector,
        to: Selector,
    },
    /// The quotient of a metric of the cells `of` between the levels `at` and `from`, divided
    /// by that of the cells `to`.
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
    /// That size for the cells `of`, divided by that for the cells `from`.
    Shift {
        metric: &'static str,
        of: Selector,
        from: Selector,
        to: Selector,
        along: &'static str,
    },
}

impl Statistic {
    /// The cells and metrics that the statistic uses, and the factor along whose levels it goes.
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
