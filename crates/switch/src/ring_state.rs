//! The switch's state of a ring, stored with the ring under the same lock.

use std::time::Instant;

use crate::backpressure::Backlog;
use crate::control::Counters;
use crate::fdb::{Fdb, FdbKey, Learnt};
use crate::limits::{LATENCY_SAMPLE, STUCK_TIMEOUT};
use crate::peers::Peers;
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
    pub fn forget(&mut self) {
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
