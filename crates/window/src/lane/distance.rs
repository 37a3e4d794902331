//! How far the consumer's processor is from the producer's, as the time that a line takes from one to the other.
//!
//! The producer reads how many slots the consumer has released. A number that it has not seen is in a line that the consumer wrote since,
//! so the load waits until the line has come from there: some 30 to 50 ns between processors that share a cache, 100 ns and more
//! between others. The scheduler, or a hypervisor, moves the two at any time, so the newest loads count.

use crate::raw::{is_emulated, ticks};

/// A line that takes less than this comes from a processor with a common cache.
const NEAR_NS: u64 = 80;

/// Loads in a row that change the result. One alone may have been interrupted, or found a line that was fetched ahead.
const LOADS: u8 = 4;

/// The distance of the two processors.
#[derive(Debug)]
pub(super) struct Distance {
    /// Not where QEMU emulates the processor: the stores do not depend on the distance there.
    is_measured: bool,
    is_near: bool,
    /// The last loads that say otherwise.
    against: u8,
}

impl Distance {
    pub(super) fn new() -> Self {
        Self {
            is_measured: !is_emulated(),
            is_near: false,
            against: 0,
        }
    }

    /// Returns whether the processors are near each other. False as long as nothing is known.
    #[inline]
    pub(super) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Loads a word of the consumer by `load`; if it is not the `known` one, records how long that took.
    #[inline]
    pub(super) fn measure(&mut self, known: u32, load: impl FnOnce() -> u32) -> u32 {
        if !self.is_measured {
            return load();
        }
        let before = ticks::ordered();
        let value = load();
        let time = ticks::ordered().saturating_sub(before);
        if value != known {
            self.record(time.saturating_mul(1000) / ticks::per_microsecond().max(1));
        }
        value
    }

    fn record(&mut self, nanoseconds: u64) {
        if (nanoseconds < NEAR_NS) == self.is_near {
            self.against = 0;
            return;
        }
        self.against += 1;
        if self.against == LOADS {
            self.is_near = !self.is_near;
            self.against = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_loads_in_a_row_change_the_distance() {
        let mut distance = Distance::new();
        let mut after = |times: &[u64]| {
            times.iter().for_each(|time| distance.record(*time));
            distance.is_near()
        };
        assert!(!after(&[40, 40, 40]) && !after(&[200]));
        assert!(!after(&[40, 40, 40]) && after(&[40]));
        assert!(after(&[40, 5000, 40, 200, 200, 200]) && after(&[40]));
        assert!(!after(&[200, 200, 200, 200]));
    }

    #[test]
    fn only_new_values_count() {
        let mut distance = Distance {
            is_measured: true,
            ..Distance::new()
        };
        for _ in 0..2 * LOADS {
            assert_eq!(distance.measure(7, || 7), 7);
        }
        assert_eq!((distance.is_near, distance.against), (false, 0));
        for _ in 0..LOADS {
            let slow = || {
                std::thread::sleep(std::time::Duration::from_micros(1));
                7
            };
            distance.is_near = true;
            distance.measure(6, slow);
        }
        assert!(!distance.is_near());
    }
}
