//! The number of messages of a measurement.

/// Returns the number of messages of a measurement, which takes some tenths of a second.
pub(super) fn count(length: u32, bytes: u64, most: u64) -> u64 {
    (bytes / u64::from(length.max(1))).clamp(50, most)
}
