//! What the switch knows of a ring. It lies beside the ring, behind the same lock.

use std::time::Instant;

use crate::backpressure::Backlog;
use crate::control::Counters;
use crate::fdb::{Fdb, FdbKey, Learnt};
use crate::limits::{LATENCY_SAMPLE, STUCK_TIMEOUT};
use crate::peers::Peers;
use crate::steering::WakeSet;

/// What is known of a ring: a transmit ring uses the one half, a receive ring the other.
#[derive(Debug, Default)]
pub struct RingState {
    /// Running totals of the ring.
    pub counters: Counters,
    /// Of a transmit ring: the frames held back.
    pub backlog: Backlog,
    /// Of a transmit ring: whom its frames went to.
    pub(crate) peers: Peers,
    /// Of a transmit ring: what it taught the residency table.
    pub learn_cache: LearnCache,
    /// Of a transmit ring: which of its bursts are measured.
    pub(crate) sampler: Sampler,
    /// Of a transmit ring: frames it has brought since its worker last slept.
    pub sent: u32,
    /// Of a receive ring: it had too few buffers when last tried.
    pub shortage: Option<BufferShortage>,
    /// Of a receive ring: workers that have asked for a kick. Whoever takes the ring in hand takes
    /// the kick for itself, and wakes them instead.
    pub wake_set: WakeSet,
}

impl RingState {
    /// The receive ring was too short; it had `seen` chains.
    pub fn note_shortage(&mut self, seen: u16, now: Instant) -> BufferShortage {
        let since = self.shortage.map_or(now, |shortage| shortage.since);
        *self.shortage.insert(BufferShortage { since, seen })
    }

    /// Its port's rings have started, stopped, or been enabled or disabled: what waited in a
    /// transmit ring is another's business, a receive ring may have room.
    pub fn ring_changed(&mut self) {
        self.shortage = None;
        self.backlog.forget_ring();
    }
}

/// Chooses the bursts of which the latency is measured.
#[derive(Debug, Default)]
pub(crate) struct Sampler(u32);

impl Sampler {
    /// Whether the next burst is one: the first is, so that little traffic is seen too.
    #[inline]
    pub(crate) fn next(&mut self) -> bool {
        let turn = self.0;
        self.0 = turn.wrapping_add(1);
        turn % LATENCY_SAMPLE == 0
    }
}

/// A receive ring found too short for a frame.
#[derive(Clone, Copy, Debug)]
pub struct BufferShortage {
    /// Since when it has taken nothing.
    pub since: Instant,
    /// How many chains it had, which were too few.
    pub seen: u16,
}

impl BufferShortage {
    /// It has been short for longer than anybody waits.
    #[must_use]
    pub fn is_stuck(&self, now: Instant) -> bool {
        now.duration_since(self.since) > STUCK_TIMEOUT
    }
}

/// A sender's dealings with the residency table.
#[derive(Debug, Default)]
pub struct LearnCache {
    /// The last address noted: most frames repeat it.
    last: Option<FdbKey>,
    /// When: it is noted again a second later, or when some address has moved, for it may have
    /// been this one.
    moment: (u32, u32),
}

impl LearnCache {
    /// A burst begins, at this second.
    #[inline]
    pub fn begin(&mut self, now: u32, table: &Fdb) {
        let moment = (now, table.moves());
        if self.moment != moment {
            self.moment = moment;
            self.last = None;
        }
    }

    /// Note even what was just noted.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Note the source of a frame of a port that may teach `limit` addresses.
    #[inline]
    pub fn note(&mut self, source: FdbKey, port: u16, limit: u32, table: &Fdb) {
        if self.last != Some(source) {
            self.last = Some(source);
            let (now, _) = self.moment;
            let _: Learnt = table.learn(source, port, now, limit);
        }
    }
}
