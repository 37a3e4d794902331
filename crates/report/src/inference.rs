//! Statistical inference from a few figures, one for each block. All functions are pure.
//!
//! Intervals are bootstrapped. Significance is Student's t over the blocks' figures, because a
//! bootstrap of three blocks does not estimate what a fourth block would yield. Many claims are tested
//! in one run, so their p-values are corrected together (Holm).

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::stats::quantile;

/// Resamples of a bootstrap.
const RESAMPLES: u32 = 4000;

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The region in which a claim expects a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Region {
    /// Greater than this.
    Above(f64),
    /// Less than this.
    Below(f64),
    /// Between these two.
    Within(f64, f64),
}

/// Evidence that the mean is inside a region, and that it is outside: two one-sided p-values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PValues {
    /// Probability of such figures if the mean were outside the region.
    pub inside: f64,
    /// Probability of such figures if the mean were inside the region.
    pub outside: f64,
}

impl Region {
    /// Returns the region to which an increasing function maps this region.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        match self {
            Self::Above(x) => Self::Above(f(x)),
            Self::Below(x) => Self::Below(f(x)),
            Self::Within(low, high) => Self::Within(f(low), f(high)),
        }
    }

    /// Whether a figure is in the region.
    #[must_use]
    pub fn contains(self, x: f64) -> bool {
        match self {
            Self::Above(bound) => x > bound,
            Self::Below(bound) => x < bound,
            Self::Within(low, high) => low < x && x < high,
        }
    }

    /// Tests the mean of the figures against the region.
    #[must_use]
    pub fn test(self, figures: &[f64]) -> PValues {
        let above = |bound| p_mean_above(figures, bound);
        match self {
            Self::Above(x) => PValues {
                inside: above(x),
                outside: 1.0 - above(x),
            },
            Self::Below(x) => PValues {
                inside: 1.0 - above(x),
                outside: above(x),
            },
            // There are two one-sided tests. The mean is inside only if it is significantly above one bound and
            // significantly below the other.
            Self::Within(low, high) => PValues {
                inside: above(low).max(1.0 - above(high)),
                outside: (1.0 - above(low)).min(above(high)),
            },
        }
    }
}

impl PValues {
    /// Returns the two-sided p-value for the side that the figures support.
    #[must_use]
    pub fn p(self) -> f64 {
        (2.0 * self.inside.min(self.outside)).min(1.0)
    }

    /// Whether the figures support the region rather than its complement.
    #[must_use]
    pub fn supports_region(self) -> bool {
        self.inside <= self.outside
    }
}

/// Returns the arithmetic mean; NaN if there are no figures.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
pub fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len() as f64
}

/// Returns the estimated standard deviation of the population from which the figures were drawn; NaN for fewer than
/// two figures.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
pub fn deviation(figures: &[f64]) -> f64 {
    let centre = mean(figures);
    let squares: f64 = figures.iter().map(|x| (x - centre).powi(2)).sum();
    if figures.len() < 2 {
        return f64::NAN;
    }
    (squares / (figures.len() - 1) as f64).sqrt()
}

/// Returns the coefficient of variation, which is the standard deviation divided by the mean; NaN if that is
/// undefined.
#[must_use]
pub fn variation(figures: &[f64]) -> f64 {
    let cov = deviation(figures) / mean(figures);
    if cov.is_finite() { cov } else { f64::NAN }
}

/// Returns the one-sided p-value of Student's t for "the mean is above `bound`". With fewer than three
/// figures, or with figures that are no numbers, the value is 0.5.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
pub fn p_mean_above(figures: &[f64], bound: f64) -> f64 {
    let n = figures.len() as f64;
    let centre = mean(figures);
    let error = deviation(figures) / n.sqrt();
    if n < 3.0 || !centre.is_finite() || !error.is_finite() {
        return 0.5;
    }
    if error == 0.0 {
        // Figures that are all equal, as ranks often are, have no spread. Use the probability that
        // all are on one side (sign test).
        let chance = 0.5_f64.powf(n);
        return match centre.total_cmp(&bound) {
            std::cmp::Ordering::Greater => chance,
            std::cmp::Ordering::Less => 1.0 - chance,
            std::cmp::Ordering::Equal => 0.5,
        };
    }
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(0.5, |t| t.sf((centre - bound) / error))
}

/// Returns half the width of the 95 % interval of the mean by Student's t, which decides whether more blocks are
/// needed. The result is infinite with fewer than three figures.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
pub fn half_width(figures: &[f64]) -> f64 {
    let n = figures.len() as f64;
    let error = deviation(figures) / n.sqrt();
    if n < 3.0 || !error.is_finite() {
        return f64::INFINITY;
    }
    StudentsT::new(0.0, 1.0, n - 1.0).map_or(f64::INFINITY, |t| t.inverse_cdf(0.975) * error)
}

/// Returns the bootstrapped 95 % interval of `statistic` over blocks: percentiles over resamples, which are the same
/// for the same `count`. The percentiles include infinite statistics, but not NaN.
#[must_use]
pub fn bootstrap(count: usize, statistic: impl Fn(&[usize]) -> f64) -> Interval {
    let found = resample(count, statistic);
    Interval {
        low: quantile_of_any(&found, 0.025),
        high: quantile_of_any(&found, 0.975),
    }
}

/// Returns the statistic of each resample of `count` blocks. `statistic` receives the numbers of the chosen blocks.
#[must_use]
pub fn resample(count: usize, statistic: impl Fn(&[usize]) -> f64) -> Vec<f64> {
    if count == 0 {
        return Vec::new();
    }
    let mut dice = fastrand::Rng::with_seed(0x5eed);
    let mut chosen = vec![0; count];
    let resamples = (0..RESAMPLES).map(|_| {
        chosen.fill_with(|| dice.usize(..count));
        statistic(&chosen)
    });
    resamples.filter(|value| !value.is_nan()).collect()
}

/// Returns a quantile. If a value is infinite, this function does not interpolate, because that yields NaN between two
/// infinite values.
fn quantile_of_any(values: &[f64], q: f64) -> f64 {
    if values.iter().all(|value| value.is_finite()) {
        return quantile(values, q);
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a short list"
    )]
    let place = (q * (sorted.len().saturating_sub(1)) as f64).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// Applies Holm's correction, and returns adjusted p-values in the given order. The caller compares each with the
/// significance level for all claims together.
#[must_use]
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    let of = |at: usize| p.get(at).copied().unwrap_or(1.0);
    order.sort_by(|a, b| of(*a).total_cmp(&of(*b)));
    let mut adjusted = vec![1.0; p.len()];
    let mut highest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a catalogue has few claims")]
        let factor = (p.len() - rank) as f64;
        highest = highest.max((of(at) * factor).min(1.0));
        if let Some(slot) = adjusted.get_mut(at) {
            *slot = highest;
        }
    }
    adjusted
}

/// Returns the size from which a curve of log ratios stays positive, by interpolation on a
/// logarithmic axis: zero if the curve is positive everywhere, infinite if it is not positive at the end.
#[must_use]
pub fn crossover(points: &[(f64, f64)]) -> f64 {
    let Some(last_below) = points.iter().rposition(|(_, gain)| *gain <= 0.0) else {
        return if points.is_empty() { f64::NAN } else { 0.0 };
    };
    match (points.get(last_below), points.get(last_below + 1)) {
        (Some((size, gain)), Some((next, more))) => {
            let share = gain / (gain - more);
            (size.ln() + share * (next.ln() - size.ln())).exp()
        }
        _ => f64::INFINITY,
    }
}

/// Returns Spearman's rank correlation; NaN if one side does not vary.
#[must_use]
pub fn rank_correlation(x: &[f64], y: &[f64]) -> f64 {
    let (x, y) = (ranks(x), ranks(y));
    let (mx, my) = (mean(&x), mean(&y));
    let sum = |f: &dyn Fn(f64, f64) -> f64| {
        x.iter()
            .zip(&y)
            .map(|(a, b)| f(a - mx, b - my))
            .sum::<f64>()
    };
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

/// Returns ranks from one. Equal values share the mean of their ranks.
#[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
fn ranks(values: &[f64]) -> Vec<f64> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| other < &value).count() as f64;
        let equal = values.iter().filter(|other| other == &value).count() as f64;
        below + f64::midpoint(equal, 1.0)
    };
    values.iter().map(rank).collect()
}

#[cfg(test)]
#[path = "inference_tests.rs"]
mod tests;
