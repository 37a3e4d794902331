//! Divides the time of a worker among the VMs that it serves.
//!
//! The model: a worker spends its time on the frames that it transfers and on their bytes. A frame
//! costs as much as [`BYTES_PER_FRAME`] of its bytes. This is the measurement of `docs/performance.md`:
//! 78 cycles for 64 bytes, 157 cycles for 1500 bytes. The sender and the receiver of a frame pay equal
//! parts. For a frame from or to the uplink the VM pays alone. If a worker transferred no frames, no VM
//! pays for its time.

use crate::traffic::Traffic;

/// The number of bytes that cost as much as the fixed part of a frame: 73 cycles for a frame and 0.055
/// cycles for a byte, rounded to the precision of the measurement.
const BYTES_PER_FRAME: f64 = 1400.0;

/// Returns the parts of a worker's time for ports with this traffic, each between 0 and 1. The parts
/// add up to 1, or are all 0 if there was no traffic.
pub(crate) fn parts(moved: &[Traffic]) -> Vec<f64> {
    let cost = |one: &Traffic| one.frames() as f64 + one.bytes() as f64 / BYTES_PER_FRAME;
    let costs: Vec<f64> = moved.iter().map(cost).collect();
    let sum: f64 = costs.iter().sum();
    let part = |cost: f64| if sum > 0.0 { cost / sum } else { 0.0 };
    costs.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(tx_frames: u64, tx_bytes: u64) -> Traffic {
        Traffic {
            tx_frames,
            tx_bytes,
            ..Traffic::default()
        }
    }

    #[test]
    fn bytes_count_beside_frames() {
        assert_eq!(parts(&[sent(10, 0), sent(10, 0)]), [0.5, 0.5]);
        assert_eq!(parts(&[sent(10, 28_000), sent(10, 0)]), [0.75, 0.25]);
        assert_eq!(parts(&[sent(0, 0), sent(0, 0)]), [0.0, 0.0]);
    }

    proptest! {
        #[test]
        fn no_work_is_charged_twice(moved in prop::collection::vec((any::<u32>(), any::<u64>()), 1..9)) {
            let moved: Vec<_> = moved.iter().map(|(f, b)| sent(u64::from(*f), *b)).collect();
            let parts = parts(&moved);
            let sum: f64 = parts.iter().sum();
            prop_assert!(sum == 0.0 || (sum - 1.0).abs() < 1e-9);
            prop_assert!(parts.iter().all(|part| (0.0..=1.0).contains(part)));
        }
    }
}
