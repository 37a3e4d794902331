//! The vertical axis of a plot.

use super::series::{Point, Series};

/// Maps values to places between 0 and 1.
pub(super) enum Axis {
    /// A linear axis from a round number to a round number.
    Linear { low: f64, high: f64, step: f64 },
    /// A logarithmic axis from a power of ten to a power of ten; the fields are exponents.
    Logarithmic { low: i32, high: i32 },
}

/// If the largest value is more than this many times the smallest, the axis is logarithmic, because on a linear axis
/// the small values would lie on the baseline.
const WIDE: f64 = 30.0;

impl Axis {
    /// Returns the axis for these curves.
    pub(super) fn of(series: &[Series]) -> Self {
        let points = || series.iter().flat_map(|one| one.points.iter().flatten());
        let values = points().flat_map(|point| [point.low, point.high, point.mean]);
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((0.0_f64, 0.0_f64), |(a, b), value| {
                (a.min(value), b.max(value))
            });
        let least = points()
            .map(|point: &Point| point.mean)
            .fold(f64::INFINITY, f64::min);
        // A logarithmic axis cannot show zero.
        if least > 0.0 && least.is_finite() && high / least > WIDE {
            return Self::logarithmic(least, high);
        }
        let span = if high > low { high - low } else { 1.0 };
        let step = nice(span / 4.0);
        Self::Linear {
            low: (low / step).floor() * step,
            high: ((low + span) / step).ceil() * step,
            step,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the exponents of a measured figure"
    )]
    fn logarithmic(least: f64, most: f64) -> Self {
        Self::Logarithmic {
            low: least.log10().floor() as i32,
            high: most.log10().ceil() as i32,
        }
    }

    /// Returns the place of a value, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match *self {
            Self::Linear { low, high, .. } => (value - low) / (high - low),
            Self::Logarithmic { low, high } => {
                (value.max(f64::MIN_POSITIVE).log10() - f64::from(low)) / f64::from(high - low)
            }
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the values at which the axis has a tick.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match *self {
            Self::Linear { low, high, step } => (0..=12)
                .map(|n| low + f64::from(n) * step)
                .take_while(|tick| *tick <= high + step / 2.0)
                .collect(),
            Self::Logarithmic { low, high } => {
                (low..=high).map(|exponent| 10_f64.powi(exponent)).collect()
            }
        }
    }
}

/// Returns the next number that is 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let times = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|times| step <= times * power);
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(values: &[f64]) -> Vec<Series> {
        let points = values.iter().map(|mean| {
            Some(Point {
                mean: *mean,
                low: mean * 0.9,
                high: mean * 1.1,
            })
        });
        vec![Series {
            name: String::new(),
            points: points.collect(),
        }]
    }

    #[test]
    fn steps_are_round() {
        assert!((nice(0.23) - 0.5).abs() < 1e-12 && (nice(130.0) - 200.0).abs() < 1e-12);
        assert_eq!(
            Axis::of(&curve(&[3.0, 7.0])).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0]
        );
    }

    #[test]
    fn values_far_apart_have_different_labels() {
        let axis = Axis::of(&curve(&[15.0, 900.0]));
        assert_eq!(axis.ticks(), [10.0, 100.0, 1000.0]);
        assert!(axis.place(20.0) - axis.place(15.0) > 0.05);
        // Only linear axes show values of zero and less.
        for values in [[0.0, 900.0], [-1.0, 900.0]] {
            assert!(matches!(Axis::of(&curve(&values)), Axis::Linear { .. }));
        }
    }
}
