//! Histograms with buckets at powers of two.

use serde::{Deserialize, Serialize};

/// Frames in a burst, with buckets up to 1, 2, 4, … 64, and above.
pub type Bursts = Histogram<0, 8>;

/// Nanoseconds, with buckets up to 2^8 (256 ns), 2^9, … 2^27 (134 ms), and above.
pub type Delays = Histogram<8, 21>;

/// Counts of values. Bucket `i` counts values up to 2^(FIRST + i) that are above the bucket before. The last
/// bucket also counts all larger values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(bound = "[u64; N]: Serialize + for<'d> Deserialize<'d>")]
pub struct Histogram<const FIRST: u32, const N: usize> {
    /// The number of values in each bucket.
    pub counts: [u64; N],
    /// The sum of all values.
    pub sum: u64,
}

impl<const FIRST: u32, const N: usize> Default for Histogram<FIRST, N> {
    fn default() -> Self {
        Self {
            counts: [0; N],
            sum: 0,
        }
    }
}

impl<const FIRST: u32, const N: usize> Histogram<FIRST, N> {
    /// Counts a value.
    #[inline]
    pub fn note(&mut self, value: u64) {
        let bits = u64::BITS - value.saturating_sub(1).leading_zeros();
        let bucket = bits.saturating_sub(FIRST) as usize;
        if let Some(count) = self.counts.get_mut(bucket.min(N - 1)) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Returns each bound, with the number of values that are not above it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bounds = (FIRST..).map(|power| 1_u64.checked_shl(power).unwrap_or(u64::MAX));
        let sums = self.counts.iter().scan(0_u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        });
        // The last bucket is above all bounds.
        bounds.zip(sums).take(N - 1)
    }

    /// Returns the sum of both histograms.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for (count, more) in sum.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        sum.sum = sum.sum.saturating_add(other.sum);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_whose_bound_is_not_below_it() {
        for (value, place) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6)] {
            let mut bursts = Bursts::default();
            bursts.note(value);
            assert_eq!(bursts.counts[place], 1, "{value}");
        }
        for (value, place) in [(0, 0), (256, 0), (257, 1), (1 << 27, 19), (u64::MAX, 20)] {
            let mut delays = Delays::default();
            delays.note(value);
            assert_eq!(delays.counts[place], 1, "{value}");
        }
    }

    #[test]
    fn cumulative_counts_increase_with_the_bounds() {
        let mut bursts = Bursts::default();
        [1, 1, 3, 64]
            .into_iter()
            .for_each(|value| bursts.note(value));
        let all: Vec<_> = bursts.plus(&bursts).cumulative().collect();
        let expected = [(1, 4), (2, 4), (4, 6), (8, 6), (16, 6), (32, 6), (64, 8)];
        assert_eq!(all, expected);
        assert_eq!((bursts.count(), bursts.sum), (4, 69));
    }
}
