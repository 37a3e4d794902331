//! The rate limit of a space.
//!
//! A connection that has bytes to send reserves a number of bytes and gets the time from which it may send them (GCRA, a
//! token bucket without a timer). Reservations follow each other at the configured rate, in the order of the requests. So
//! all sending connections get equal rates, however many there are.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Reservations per second into which the rate is divided, within the bounds of [`RESERVATION_BYTES`].
const RESERVATIONS_PER_SECOND: u64 = 50;

/// Bounds of the bytes of one reservation.
const RESERVATION_BYTES: RangeInclusive<u64> = 1 << 10..=128 << 10;

/// Unused capacity of this long before now may be sent at once.
const BURST: Duration = Duration::from_millis(100);

/// The rate limit, which may be off.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// Bytes per second; 0 for no limit.
    bytes: AtomicU64,
    /// When the next reservation may begin.
    next: Mutex<Option<Instant>>,
}

/// Permission to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// The time from which the bytes may be sent; it may be past.
    pub(crate) at: Instant,
    /// Number of bytes.
    pub(crate) bytes: usize,
}

impl RateLimit {
    /// Sets the limit in bytes per second. Reservations already made stay valid.
    pub(crate) fn set(&self, bytes: Option<u64>) {
        self.bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        *self.next() = None;
    }

    /// Reserves at most `requested` bytes. Returns `None` if there is no limit.
    pub(crate) fn reserve(&self, now: Instant, requested: usize) -> Option<Reservation> {
        let rate = self.bytes.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let max_bytes = (rate / RESERVATIONS_PER_SECOND)
            .clamp(*RESERVATION_BYTES.start(), *RESERVATION_BYTES.end());
        let bytes = requested.min(usize::try_from(max_bytes).unwrap_or(requested));
        let mut next = self.next();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = at.checked_add(Duration::from_secs_f64(bytes as f64 / rate as f64));
        Some(Reservation { at, bytes })
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // The value is a single time, which is valid after a panic, too.
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of all reservations made at `now` that begin before `end`.
    fn before(rate: &RateLimit, now: Instant, end: Instant) -> usize {
        let reservations = std::iter::repeat_with(|| rate.reserve(now, usize::MAX).unwrap());
        reservations
            .take_while(|reservation| reservation.at < end)
            .map(|reservation| reservation.bytes)
            .sum()
    }

    #[test]
    fn reservations_follow_the_rate_and_the_burst() {
        let rate = RateLimit::default();
        let start = Instant::now() + Duration::from_secs(60);
        assert_eq!(rate.reserve(start, 1), None);
        for bytes in [1_000, 1_000_000, 10_000_000_000] {
            rate.set(Some(bytes));
            // One second, the burst, and the reservation that extends over the end.
            let sent = before(&rate, start, start + Duration::from_secs(1)) as u64;
            // Times are rounded to nanoseconds.
            let (least, max_bytes) = (bytes * 1099 / 1000, bytes * 1101 / 1000 + (128 << 10));
            assert!((least..=max_bytes).contains(&sent), "{bytes}: {sent}");
            // After a long pause the burst is not larger.
            let later = start + Duration::from_secs(60);
            let sent = before(&rate, later, later) as u64;
            assert!(sent <= bytes * 101 / 1000 + (128 << 10), "{bytes}: {sent}");
        }
    }

    #[test]
    fn reservations_are_no_larger_than_requested_and_in_order_of_request() {
        let rate = RateLimit::default();
        rate.set(Some(1_000_000));
        let now = Instant::now();
        let reservations = [
            rate.reserve(now, 10),
            rate.reserve(now, usize::MAX),
            rate.reserve(now, 10),
        ];
        let [little, much, last] = reservations.map(Option::unwrap);
        assert_eq!((little.bytes, much.bytes), (10, 20_000));
        assert!(little.at < much.at && much.at < last.at);
        rate.set(None);
        assert_eq!(rate.reserve(now, 10), None);
    }
}
