//! Predicts the error of the queueing model by linear regression, updated online.
//!
//! The error `e` is the logarithm of measured over predicted time, so it has no unit and a corrected prediction is never
//! negative. The regression is `e' = a e + b du + d`, where `du` is the change of the logarithm of the number of slots.
//! Recursive least squares with a forgetting factor estimates `a`, `b` and `d`. All three are bounded. An observation
//! without excitation (no change of slots and no unusual error) does not update them.

/// Forgetting factor: the weight of an observation is multiplied by it in each step.
const FORGETTING_FACTOR: f64 = 0.97;

/// Largest trace of the covariance matrix: without excitation it would grow without bound.
const MAX_TRACE: f64 = 100.0;

/// An observation below both of these updates nothing: the change of the logarithm of the slots, and the error in
/// standard deviations.
const MIN_CHANGE: f64 = 0.01;
const MIN_ERROR_DEVIATIONS: f64 = 2.0;

/// Weight of the newest squared error in the variance of errors.
const VARIANCE_GAIN: f64 = 0.1;

type Vector = [f64; 3];

/// The regression and its state.
#[derive(Clone, Debug)]
pub struct Residual {
    theta: Vector,
    covariance: [Vector; 3],
    error: f64,
    /// Smoothed variance of the prediction errors (innovations).
    variance: f64,
}

impl Default for Residual {
    fn default() -> Self {
        Self {
            theta: [0.7, 0.0, 0.0],
            covariance: initial_covariance(),
            error: 0.0,
            variance: 0.05,
        }
    }
}

fn initial_covariance() -> [Vector; 3] {
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a.into_iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Residual {
    /// Returns the error of the next step, predicted for a change of slots by `change` (difference of logarithms).
    #[must_use]
    pub fn predict(&self, change: f64) -> f64 {
        dot(self.theta, [self.error, change, 1.0])
    }

    /// Returns the standard deviation of the prediction errors.
    #[must_use]
    pub fn standard_deviation(&self) -> f64 {
        self.variance.sqrt()
    }

    /// Resets the covariance after a change of the jobs, so that the next observations have full weight.
    pub fn reset_covariance(&mut self) {
        self.covariance = initial_covariance();
    }

    /// Adds a measured error after a change of slots and returns the innovation: measured minus predicted error. If `learn`
    /// is false, the coefficients stay as they are.
    pub fn observe(&mut self, error: f64, change: f64, learn: bool) -> f64 {
        if !error.is_finite() || !change.is_finite() {
            return 0.0;
        }
        let phi = [self.error, change, 1.0];
        let innovation = error - dot(self.theta, phi);
        let is_informative = change.abs() >= MIN_CHANGE
            || innovation.abs() >= MIN_ERROR_DEVIATIONS * self.standard_deviation();
        if learn && is_informative {
            self.update(phi, innovation);
        }
        self.variance += VARIANCE_GAIN * (innovation * innovation - self.variance);
        self.error = error.clamp(-3.0, 3.0);
        innovation
    }

    fn update(&mut self, phi: Vector, innovation: f64) {
        let weighted = self.covariance.map(|row| dot(row, phi));
        let scale = FORGETTING_FACTOR + dot(phi, weighted);
        let gain = weighted.map(|value| value / scale);
        let [a, b, d] = self.theta;
        let [step_a, step_b, step_d] = gain.map(|gain| gain * innovation);
        self.theta = [
            (a + step_a).clamp(-0.9, 0.9),
            (b + step_b).clamp(-1.0, 0.0),
            (d + step_d).clamp(-1.5, 1.5),
        ];
        for (row, gain) in self.covariance.iter_mut().zip(gain) {
            for (value, weighted) in row.iter_mut().zip(weighted) {
                *value = (*value - gain * weighted) / FORGETTING_FACTOR;
            }
        }
        let [[xx, ..], [_, yy, _], [.., zz]] = self.covariance;
        let trace = xx + yy + zz;
        if trace > MAX_TRACE {
            let shrink = MAX_TRACE / trace;
            self.covariance
                .iter_mut()
                .flatten()
                .for_each(|value| *value *= shrink);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_regression_learns_a_constant_error_and_the_effect_of_slots() {
        let mut residual = Residual::default();
        let mut random = fastrand::Rng::with_seed(7);
        let mut error = 0.0;
        for _ in 0..400 {
            let change = random.f64() - 0.5;
            error = 0.4 * error - 0.5 * change + 0.3 + 0.01 * (random.f64() - 0.5);
            residual.observe(error, change, true);
        }
        let [a, b, d] = residual.theta;
        assert!((a - 0.4).abs() < 0.05 && (b + 0.5).abs() < 0.05 && (d - 0.3).abs() < 0.05);
        assert!((residual.predict(0.2) - (0.4 * error - 0.1 + 0.3)).abs() < 0.05);
        assert!(residual.standard_deviation() < 0.1);
    }

    #[test]
    fn observe_without_learn_changes_no_coefficient() {
        let mut residual = Residual::default();
        let before = residual.theta;
        residual.observe(2.0, 0.5, false);
        assert_eq!(residual.theta, before);
    }

    proptest! {
        #[test]
        fn coefficients_and_covariance_stay_within_bounds(
            steps in prop::collection::vec((-10.0_f64..10.0, -3.0_f64..3.0), 1..200),
        ) {
            let mut residual = Residual::default();
            for (error, change) in steps {
                residual.observe(error, change, true);
                let [a, b, d] = residual.theta;
                prop_assert!(a.abs() <= 0.9 && (-1.0..=0.0).contains(&b) && d.abs() <= 1.5);
                prop_assert!(residual.predict(0.0).is_finite());
                let trace: f64 = (0..3).map(|at| residual.covariance[at][at]).sum();
                prop_assert!(trace.is_finite() && trace <= MAX_TRACE * 1.001 && trace > 0.0);
            }
        }
    }
}
