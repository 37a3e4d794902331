//! Evaluates the claims of the papers as predicates over samples.
//!
//! A statistic computes one figure from the samples of one block, so that only cells that were measured next
//! to each other are compared. The claim says in which region the mean of these figures is.

use super::sample::{Sample, Selector, size};
pub use super::statistic::Statistic;
use report::inference::{self, Interval, PValues, Region};

/// A claim of a paper.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// The claim in words.
    pub text: &'static str,
    /// The paper's number; a dash if the paper only shows a curve.
    pub paper: &'static str,
    /// The figure of the claim.
    pub statistic: Statistic,
    /// The region in which the figure should be.
    pub expects: Region,
}

/// Evidence about one claim, before the correction for all claims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The figure over all blocks; NaN if nothing was measured.
    pub estimate: f64,
    /// Its bootstrapped 95 % interval.
    pub interval: Interval,
    /// p-values for and against the claim.
    pub p_values: PValues,
    /// Number of blocks that yielded a figure.
    pub blocks: usize,
    /// Number of blocks in which all cells were measured but whose figure is no number.
    pub undefined: usize,
}

/// Fewest blocks with which a statistic of all blocks together, whose p-values come from the bootstrap, is tested.
const RESAMPLED_BLOCKS: usize = 5;

impl Claim {
    /// Evaluates the samples of the claim's sweep. `levels` returns a factor's levels in their order.
    #[must_use]
    pub fn evaluate(&self, samples: &[Sample], levels: &dyn Fn(&str) -> Vec<String>) -> Evidence {
        let mut blocks: Vec<u32> = samples.iter().map(|sample| sample.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let blocks: Vec<Block<'_>> = blocks
            .into_iter()
            .map(|block| Block {
                samples: samples.iter().filter(|s| s.block == block).collect(),
            })
            .collect();
        let curves = |metric, of, to, along| -> Vec<Curve> {
            let levels = levels(along);
            let curves = blocks
                .iter()
                .map(|block| block.gains(metric, of, to, &levels, along));
            curves.collect()
        };
        match self.statistic {
            Statistic::Crossover {
                metric,
                of,
                to,
                along,
            } => {
                let mut curves = curves(metric, of, to, along);
                curves.retain(|curve| curve.len() > 1);
                let crossover = |chosen: &[usize]| inference::crossover(&together(&curves, chosen));
                self.resampled(curves.len(), crossover)
            }
            Statistic::Shift {
                metric,
                of,
                from,
                to,
                along,
            } => {
                let both = curves(metric, of, to, along).into_iter();
                let (moved, still): (Vec<Curve>, Vec<Curve>) = both
                    .zip(curves(metric, from, to, along))
                    .filter(|(moved, still)| moved.len() > 1 && still.len() > 1)
                    .unzip();
                let shift = |chosen: &[usize]| {
                    let at = |curves| inference::crossover(&together(curves, chosen));
                    shift(at(&moved), at(&still))
                };
                self.resampled(moved.len(), shift)
            }
            other => self.average(other, &blocks, levels),
        }
    }

    /// Evaluates a statistic of all blocks together, bootstrapped over blocks.
    fn resampled(&self, blocks: usize, of: impl Fn(&[usize]) -> f64) -> Evidence {
        let all: Vec<usize> = (0..blocks).collect();
        let found = inference::resample(blocks, &of);
        #[expect(clippy::cast_precision_loss, reason = "some thousand resamples")]
        let share = |inside: bool| {
            let those = found
                .iter()
                .filter(|x| self.expects.contains(**x) == inside)
                .count();
            (those + 1) as f64 / (found.len() + 1) as f64
        };
        let judged = blocks >= RESAMPLED_BLOCKS;
        Evidence {
            estimate: of(&all),
            interval: inference::bootstrap(blocks, of),
            p_values: PValues {
                inside: if judged { share(false) } else { 0.5 },
                outside: if judged { share(true) } else { 0.5 },
            },
            blocks,
            undefined: 0,
        }
    }

    fn average(
        &self,
        statistic: Statistic,
        blocks: &[Block<'_>],
        levels: &dyn Fn(&str) -> Vec<String>,
    ) -> Evidence {
        let found = blocks
            .iter()
            .filter_map(|block| block.figure(statistic, levels));
        let (figures, undefined): (Vec<f64>, Vec<f64>) =
            found.partition(|figure| figure.is_finite());
        // Ratios are averaged as logarithms, so that 2 and 1/2 cancel out.
        let of = |chosen: &[usize]| {
            let picked: Vec<f64> = chosen
                .iter()
                .filter_map(|at| figures.get(*at).copied())
                .collect();
            inference::mean(&picked)
        };
        let all: Vec<usize> = (0..figures.len()).collect();
        let logarithmic = matches!(
            statistic,
            Statistic::Ratio { .. }
                | Statistic::Metrics { .. }
                | Statistic::Relative { .. }
                | Statistic::Growth { .. }
                | Statistic::LeastStep { .. }
        );
        let back = |x: f64| if logarithmic { x.exp() } else { x };
        let region = if logarithmic {
            self.expects.map(f64::ln)
        } else {
            self.expects
        };
        let interval = inference::bootstrap(figures.len(), of);
        Evidence {
            estimate: back(of(&all)),
            interval: Interval {
                low: back(interval.low),
                high: back(interval.high),
            },
            p_values: region.test(&figures),
            blocks: figures.len(),
            undefined: undefined.len(),
        }
    }
}

/// The points of a curve: size and log ratio.
type Curve = Vec<(f64, f64)>;

/// Returns the mean of the chosen curves.
fn together(curves: &[Curve], chosen: &[usize]) -> Curve {
    let picked: Vec<&Curve> = chosen.iter().filter_map(|at| curves.get(*at)).collect();
    let sizes = picked.first().map_or(&[][..], |curve| curve.as_slice());
    let at = |size: f64| {
        let curves = picked.iter();
        let ratios = curves.flat_map(|curve| curve.iter().filter(|p| p.0 == size).map(|p| p.1));
        inference::mean(&ratios.collect::<Vec<f64>>())
    };
    sizes.iter().map(|(size, _)| (*size, at(*size))).collect()
}

/// Returns the quotient of two sizes, which may be zero or infinite.
fn shift(size: f64, other: f64) -> f64 {
    match size.total_cmp(&other) {
        std::cmp::Ordering::Equal => 1.0,
        _ => size / other,
    }
}

/// The samples of one block.
struct Block<'a> {
    samples: Vec<&'a Sample>,
}

impl Block<'_> {
    /// Returns the mean of a metric over the cells that match.
    fn value(&self, metric: &str, of: &[(&str, &str)]) -> Option<f64> {
        let matching = self.samples.iter().filter(|sample| sample.cell.matches(of));
        let found: Vec<f64> = matching
            .filter_map(|sample| sample.values.get(metric).copied())
            .collect();
        (!found.is_empty()).then(|| inference::mean(&found))
    }

    fn figure(&self, statistic: Statistic, levels: &dyn Fn(&str) -> Vec<String>) -> Option<f64> {
        let steps = |metric, of, along: &str| self.along(metric, of, along, &levels(along));
        match statistic {
            Statistic::Value { metric, of } => self.value(metric, of),
            Statistic::Ratio { metric, of, to } => {
                Some((self.value(metric, of)? / self.value(metric, to)?).ln())
            }
            Statistic::Difference { metric, of, to } => {
                Some(self.value(metric, of)? - self.value(metric, to)?)
            }
            Statistic::Metrics { metric, to, of } => {
                Some((self.value(metric, of)? / self.value(to, of)?).ln())
            }
            Statistic::Gap { metric, to, of } => {
                Some(self.value(metric, of)? - self.value(to, of)?)
            }
            Statistic::Trend { metric, of, along } => {
                let (places, values): (Vec<f64>, Vec<f64>) =
                    steps(metric, of, along).into_iter().unzip();
                (values.len() > 1).then(|| inference::rank_correlation(&places, &values))
            }
            Statistic::FirstStep { metric, of, along } => {
                let values: Vec<f64> = steps(metric, of, along)
                    .into_iter()
                    .map(|step| step.1)
                    .collect();
                let rises: Vec<f64> = values
                    .windows(2)
                    .filter_map(|w| Some(w.last()? - w.first()?))
                    .collect();
                let (first, others) = rises.split_first()?;
                (!others.is_empty())
                    .then(|| first - others.iter().copied().fold(f64::MIN, f64::max))
            }
            Statistic::LeastStep { metric, of, along } => {
                let values = steps(metric, of, along);
                let quotients = values
                    .windows(2)
                    .filter_map(|w| Some((w.last()?.1 / w.first()?.1).ln()));
                quotients.reduce(f64::min)
            }
            Statistic::Decline { metric, of, along } => {
                let values: Vec<f64> = steps(metric, of, along)
                    .into_iter()
                    .map(|step| step.1)
                    .collect();
                Some(values.last()? / values.iter().copied().fold(f64::MIN, f64::max))
            }
            Statistic::Correlation { x, y, of } => {
                let matching = self.samples.iter().filter(|sample| sample.cell.matches(of));
                let pairs = matching.filter_map(|s| Some((*s.values.get(x)?, *s.values.get(y)?)));
                let (xs, ys): (Vec<f64>, Vec<f64>) = pairs.unzip();
                (xs.len() > 1).then(|| inference::rank_correlation(&xs, &ys))
            }
            Statistic::Relative {
                metric,
                than,
                of,
                to,
            } => {
                let quotient =
                    |metric| Some((self.value(metric, of)? / self.value(metric, to)?).ln());
                Some(quotient(metric)? - quotient(than)?)
            }
            Statistic::Growth {
                metric,
                of,
                to,
                from,
                at,
            } => {
                let value = |a: Selector, b: Selector| self.value(metric, &[a, b].concat());
                let growth = |cells| Some((value(cells, at)? / value(cells, from)?).ln());
                Some(growth(of)? - growth(to)?)
            }
            Statistic::Crossover { .. } | Statistic::Shift { .. } => None,
        }
    }

    /// Returns a metric's values along a factor, with the places of their levels.
    fn along(&self, metric: &str, of: Selector, along: &str, levels: &[String]) -> Vec<(f64, f64)> {
        let step = |(place, level): (u32, &String)| {
            let mut at: Vec<(&str, &str)> = of.to_vec();
            at.push((along, level));
            Some((f64::from(place), self.value(metric, &at)?))
        };
        (0..).zip(levels).filter_map(step).collect()
    }

    /// Returns each size with the log ratio of `of` to `to` at this size.
    fn gains(
        &self,
        metric: &str,
        of: Selector,
        to: Selector,
        levels: &[String],
        along: &str,
    ) -> Curve {
        let gain = |level: &String| {
            let side = |cells: Selector| {
                let mut at: Vec<(&str, &str)> = cells.to_vec();
                at.push((along, level));
                self.value(metric, &at)
            };
            let ratio = (side(of)? / side(to)?).ln();
            ratio
                .is_finite()
                .then_some((f64::from(size(level)?), ratio))
        };
        levels.iter().filter_map(gain).collect()
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
