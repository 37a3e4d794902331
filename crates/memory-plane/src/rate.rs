//! How fast a space may send.
//!
//! Who wants to send is given a turn: so many bytes, and from when. Turns follow each other as the rate
//! has it, in the order they were asked for, so all clients are sent equally much, however many
//! connections wait.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Turns for each second's bytes, within [`RESERVATION_BYTES`].
const RESERVATIONS_PER_SECOND: u64 = 50;

/// Bytes of a turn.
const RESERVATION_BYTES: RangeInclusive<u64> = 1 << 10..=128 << 10;

/// What could have been sent in so long before, and was not, may be sent at once.
const BURST: Duration = Duration::from_millis(100);

/// Bytes a second, or as many as there are.
#[derive(Debug, Default)]
pub(crate) struct RateLimit {
    /// 0 for no limit.
    bytes: AtomicU64,
    /// When the next turn may be.
    next: Mutex<Option<Instant>>,
}

/// Leave to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reservation {
    /// From when; it may be past.
    pub(crate) at: Instant,
    /// How many bytes.
    pub(crate) bytes: usize,
}

impl RateLimit {
    /// Bytes a second from now on; turns that were given stay.
    pub(crate) fn set(&self, bytes: Option<u64>) {
        self.bytes.store(bytes.unwrap_or(0), Ordering::Relaxed);
        *self.next() = None;
    }

    /// The next turn, of at most this many bytes; none if no leave is needed.
    pub(crate) fn reserve(&self, now: Instant, wanted: usize) -> Option<Reservation> {
        let rate = self.bytes.load(Ordering::Relaxed);
        if rate == 0 {
            return None;
        }
        let max_bytes = (rate / RESERVATIONS_PER_SECOND)
            .clamp(*RESERVATION_BYTES.start(), *RESERVATION_BYTES.end());
        let bytes = wanted.min(usize::try_from(max_bytes).unwrap_or(wanted));
        let mut next = self.next();
        let earliest = now.checked_sub(BURST).unwrap_or(now);
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = at.checked_add(Duration::from_secs_f64(bytes as f64 / rate as f64));
        Some(Reservation { at, bytes })
    }

    fn next(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // A time, whoever wrote it.
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of turns that come before `end`, asked for all at once at `now`.
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
            // One second, what could have been sent before, and the turn that reaches over the end.
            let sent = before(&rate, start, start + Duration::from_secs(1)) as u64;
            // Times are whole nanoseconds.
            let (least, max_bytes) = (bytes * 1099 / 1000, bytes * 1101 / 1000 + (128 << 10));
            assert!((least..=max_bytes).contains(&sent), "{bytes}: {sent}");
            // After a long rest no more than that.
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
