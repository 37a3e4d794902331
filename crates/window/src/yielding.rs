//! Polling without keeping other programs from the processor.
//!
//! A polling program yields the processor from time to time. How often that is worth its price
//! depends on whether another program waits for this processor, perhaps the one whose work is
//! polled for. The kernel does not tell, but the duration of a yield does: a yield that no other
//! program uses returns at once, and any other takes two context switches. Which duration separates
//! the two is [measured](crate::calibration).
//!
//! If the peer shares this processor, polling cannot succeed before the poller yields. If the peer
//! runs on another processor, each yield costs two context switches in which the answer would have
//! arrived. The arrival time distinguishes the two: the answer of a peer on this processor is there
//! right after a yield; the answer of a peer on another processor arrives between yields.

use std::thread;
use std::time::{Duration, Instant};

use crate::calibration::Thresholds;

/// Yields the processor and records whether other programs use it.
#[derive(Debug)]
pub struct Yielder {
    /// See [`Thresholds::switch_time`].
    switch_time: Duration,
    contended: bool,
    /// Another program ran since the last poll.
    just_switched: bool,
}

/// A peer whose messages are polled for.
#[derive(Debug, Default)]
pub struct AwaitedPeer {
    shares_cpu: bool,
    arrivals: u32,
}

/// One arrival in so many is treated as if the peer ran on another processor. The scheduler may
/// have moved the peer, and a poller that always yields at once would never notice.
const RECHECK_INTERVAL: u32 = 64;

impl Default for Yielder {
    fn default() -> Self {
        Self::new(Thresholds::of_this_process())
    }
}

impl Yielder {
    /// Creates a yielder for a machine with these thresholds.
    #[must_use]
    pub fn new(thresholds: &Thresholds) -> Self {
        Self {
            switch_time: thresholds.switch_time,
            contended: false,
            just_switched: false,
        }
    }

    /// Lets another program that waits for this processor run. Returns the time after that.
    pub fn yield_now(&mut self) -> Instant {
        let before = Instant::now();
        // syscalls: sched_yield
        thread::yield_now();
        let after = Instant::now();
        self.yielded(after - before);
        after
    }

    /// Records the duration of a yield.
    pub fn yielded(&mut self, took: Duration) {
        self.contended = took >= self.switch_time;
        self.just_switched = self.contended;
    }

    /// Records that this program has polled.
    #[inline(always)]
    pub fn polled(&mut self) {
        self.just_switched = false;
    }

    /// Returns whether another program ran during the last yield. Then repeated polls find little:
    /// the peer may need this processor to produce anything.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.contended
    }
}

impl AwaitedPeer {
    /// Records that a poll found something from the peer.
    #[inline(always)]
    pub fn arrived(&mut self, yielder: &Yielder) {
        self.shares_cpu = yielder.just_switched;
        self.arrivals = self.arrivals.wrapping_add(1);
    }

    /// Returns whether the peer seems to need this processor before more can arrive.
    #[inline(always)]
    #[must_use]
    pub fn shares_cpu(&self) -> bool {
        self.shares_cpu && self.arrivals % RECHECK_INTERVAL != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER_SWITCH: Yielder = Yielder {
        switch_time: Duration::from_micros(1),
        contended: true,
        just_switched: true,
    };

    #[test]
    fn a_peer_that_answers_during_a_yield_shares_the_processor() {
        let (mut yielder, mut awaited) = (AFTER_SWITCH, AwaitedPeer::default());
        assert!(!awaited.shares_cpu());
        awaited.arrived(&yielder);
        assert!(awaited.shares_cpu());
        yielder.polled();
        awaited.arrived(&yielder);
        assert!(
            !awaited.shares_cpu(),
            "it arrived while this program polled"
        );
        assert!(yielder.is_contended());
    }

    #[test]
    fn sharing_is_rechecked_at_intervals() {
        let mut awaited = AwaitedPeer::default();
        let mut shared = || {
            awaited.arrived(&AFTER_SWITCH);
            awaited.shares_cpu()
        };
        let arrivals = (0..2 * RECHECK_INTERVAL).filter(|_| shared()).count();
        assert_eq!(arrivals, 2 * (RECHECK_INTERVAL as usize - 1));
    }
}
