//! Quantiles and ratios of a run's samples.

/// Returns the `q`-quantile (0 to 1) of the samples, interpolated between neighbours; NaN if there are none.
#[must_use]
pub fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    #[expect(clippy::cast_precision_loss, reason = "sample counts are small")]
    let place = q.clamp(0.0, 1.0) * last as f64;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to last"
    )]
    let below = place.floor() as usize;
    let value = |at: usize| sorted.get(at.min(last)).copied().unwrap_or(f64::NAN);
    let share = place - place.floor();
    value(below) * (1.0 - share) + value(below + 1) * share
}

/// Returns the median; NaN if there are no samples.
#[must_use]
pub fn median(samples: &[f64]) -> f64 {
    quantile(samples, 0.5)
}

/// Returns `b / a` for pairs that were measured next to each other. A disturbance that slows down a whole round
/// affects both and cancels out of their ratio.
#[must_use]
pub fn paired_ratios(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| b / a).collect()
}

/// Returns the median of [`paired_ratios`].
#[must_use]
pub fn paired_ratio(a: &[f64], b: &[f64]) -> f64 {
    median(&paired_ratios(a, b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    #[test]
    fn quantiles_of_an_unsorted_list() {
        let list = [4.0, 1.0, 3.0, 2.0];
        assert!(near(median(&list), 2.5));
        assert!(near(quantile(&list, 0.0), 1.0));
        assert!(near(quantile(&list, 1.0), 4.0));
        assert!(near(quantile(&list, 0.25), 1.75));
        assert!(near(median(&[7.0]), 7.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_pair_is_compared_within_itself() {
        // Both sides were slow in the second round, which does not change the ratio.
        let ratios = paired_ratios(&[100.0, 10.0, 100.0], &[200.0, 20.0, 300.0]);
        assert_eq!(ratios, [2.0, 2.0, 3.0]);
        assert!(near(paired_ratio(&[1.0, 1.0, 1.0], &[9.0, 1.0, 2.0]), 2.0));
    }
}
