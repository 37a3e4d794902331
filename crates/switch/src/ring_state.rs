//! The switch's state of a ring, stored with the ring under the same lock.

use std::time::Instant;

use crate::backpressure::Backlog;
use crate::control::Counters;
use crate::fdb::{Fdb, FdbKey, Learnt};
use crate::limits::{LATENCY_SAMPLE, STUCK_TIMEOUT};
use crate::peers::Peers;
use crate::remote_peers::RemotePeers;
use crate::steering::WakeSet;

/// The state of a ring. Some fields are for transmit rings, others for receive rings.
#[derive(Debug, Default)]
pub struct RingState {
    /// Running totals of the ring.
    pub counters: Counters,
    /// Transmit ring: the frames that wait for their receivers.
    pub backlog: Backlog,
    /// Transmit ring: the destination ports of its frames.
    pub(crate) peers: Peers,
    /// Transmit ring: the destinations of its frames behind an uplink.
    pub(crate) remote_peers: RemotePeers,
    /// Transmit ring: the source address that the FDB learnt last.
    pub learn_cache: LearnCache,
    /// Transmit ring: selects the bursts whose latency is measured.
    pub(crate) sampler: Sampler,
    /// Transmit ring: frames sent since the worker last slept.
    pub sent: u32,
    /// Receive ring: it had too few buffers at the last attempt.
    pub shortage: Option<BufferShortage>,
    /// Receive ring: the workers that have enabled kicks. A worker that fills the ring disables kicks,
    /// and wakes these workers instead.
    pub wake_set: WakeSet,
}

impl RingState {
    /// Records that the receive ring had only `seen` chains, which were too few.
    pub fn note_shortage(&mut self, seen: u16, now: Instant) -> BufferShortage {
        let since = self.shortage.map_or(now, |shortage| shortage.since);
        *self.shortage.insert(BufferShortage { since, seen })
    }

    /// Resets the state after rings of the port were started, stopped, enabled or disabled: frames that
    /// waited in a transmit ring are read again, and a receive ring may have room.
    pub fn ring_changed(&mut self) {
        self.shortage = None;
        self.backlog.forget_ring();
    }
}

/// Selects the bursts whose latency is measured.
#[derive(Debug, Default)]
pub(crate) struct Sampler(u32);

impl Sampler {
    /// Returns whether to measure the next burst. The first burst is measured, so that ports with
    /// little traffic have figures too.
    #[inline]
    pub(crate) fn next(&mut self) -> bool {
        let turn = self.0;
        self.0 = turn.wrapping_add(1);
        turn % LATENCY_SAMPLE == 0
    }
}

/// A receive ring that had too few buffers for a frame.
#[derive(Clone, Copy, Debug)]
pub struct BufferShortage {
    /// Since when no frame could be delivered.
    pub since: Instant,
    /// The number of chains that were too few.
    pub seen: u16,
}

impl BufferShortage {
    /// Returns whether the shortage has lasted for longer than [`STUCK_TIMEOUT`].
    #[must_use]
    pub fn is_stuck(&self, now: Instant) -> bool {
        now.duration_since(self.since) > STUCK_TIMEOUT
    }
}

/// The last source address that a sender taught the FDB, so that repeated addresses need no FDB access.
#[derive(Debug, Default)]
pub struct LearnCache {
    /// The last address learnt: most frames repeat it.
    last: Option<FdbKey>,
    /// The second and the FDB's count of moves when `last` was learnt. The address is learnt again in
    /// the next second, or after any address has moved, because it may be this one.
    moment: (u32, u32),
}

impl LearnCache {
    /// Begins a burst in this second.
    #[inline]
    pub fn begin(&mut self, now: u32, table: &Fdb) {
        let moment = (now, table.moves());
        if self.moment != moment {
            self.moment = moment;
            self.last = None;
        }
    }

    /// Clears the cache, so that the next address is learnt in any case.
    pub fn clear(&mut self) {
        self.last = None;
    }

    /// Learns the source address of a frame, from a port that may have up to `limit` addresses.
    #[inline]
    pub fn note(&mut self, source: FdbKey, port: u16, limit: u32, table: &Fdb) {
        if self.last != Some(source) {
            self.last = Some(source);
            let (now, _) = self.moment;
            let _: Learnt = table.learn(source, port, now, limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Random numbers below `end`, the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            // Knuth's MMIX generator; its high bits are random.
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Serves a receiver that takes frames in some milliseconds only. Returns how often a frame would
    /// have been dropped in ten minutes.
    fn drops(mut takes: impl FnMut(u64) -> bool) -> usize {
        let (start, mut ring) = (Instant::now(), RingState::default());
        let mut is_dropped = |number| {
            let now = start + Duration::from_millis(number);
            if takes(number) {
                ring.shortage = None;
                ring.backlog = Backlog::default();
                return false;
            }
            let stuck = ring.note_shortage(0, now).is_stuck(now);
            ring.backlog.stall(now) || stuck
        };
        (0..600_000).filter(|number| is_dropped(*number)).count()
    }

    /// The virtual CPU has 10 of each 100 ms, and the guest refills the ring after other work.
    #[test]
    fn a_receiver_with_a_cpu_quota_is_not_stuck() {
        let (mut random, mut work) = (Random(1), 0);
        let dropped = drops(|number| {
            if number % 100 >= 10 {
                return false;
            }
            let refills = work == 0;
            work = match refills {
                true => random.below(13),
                false => work - 1,
            };
            refills
        });
        assert_eq!(dropped, 0);
    }

    /// The host takes the CPU for 0 to 90 ms, after 1 to 10 ms each.
    #[test]
    fn a_receiver_that_loses_its_cpu_is_not_stuck() {
        let (mut random, mut lost_until, mut runs_until) = (Random(2), 0, 0);
        let dropped = drops(|number| {
            if number >= runs_until {
                lost_until = number + random.below(91);
                runs_until = lost_until + 1 + random.below(10);
            }
            number >= lost_until
        });
        assert_eq!(dropped, 0);
    }

    #[test]
    fn a_receiver_that_hangs_is_stuck() {
        assert!(drops(|number| number < 1000) > 598_000);
    }
}
