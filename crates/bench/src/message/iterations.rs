//! The number of messages of a measurement.

/// The number of messages of a measurement: as many as take some tenths of a second.
pub(super) fn count(length: u32, bytes: u64, most: u64) -> u64 {
    (bytes / u64::from(length.max(1))).clamp(50, most)
}
