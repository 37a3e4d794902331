//! A transmit ring while its frames are forwarded: returns chains, defers frames, and records frames
//! that wait.

use std::time::Instant;

use vhost::ring::Ring;

use crate::backpressure::{Backlog, Full, InRing};
use crate::batch_entry::{BatchEntry, Target};
use crate::control::{Counters, DropReason};
use crate::guard::{Guard, Limiter};
use crate::limits::BURST;
use crate::peers::Peers;
use crate::remote_peers::RemotePeers;

/// A transmit ring and its state during one burst.
pub(crate) struct Sender<'p> {
    pub(crate) port: u16,
    pub(crate) pair: usize,
    pub(crate) ring: &'p mut Ring,
    pub(crate) backlog: &'p mut Backlog,
    pub(crate) peers: &'p mut Peers,
    pub(crate) remote_peers: &'p mut RemotePeers,
    pub(crate) counters: &'p mut Counters,
    pub(crate) guard: Option<&'p Guard>,
    pub(crate) limits: &'p Limiter,
    /// The port is captured or mirrored.
    pub(crate) observed: bool,
}

impl Sender<'_> {
    /// Returns the chains of completed frames.
    #[inline]
    pub(crate) fn finish_run(&mut self, entries: &[BatchEntry<'_, '_>]) {
        self.ring
            .put_used_run(entries.iter().map(|entry| entry.chain));
        let bytes = entries.iter().map(|entry| u64::from(entry.head.length));
        self.counters.tx_frames += entries.len() as u64;
        self.counters.tx_bytes += bytes.sum::<u64>();
    }

    /// Returns the chain of a completed frame.
    #[inline]
    pub(crate) fn finish(&mut self, chain: u16, length: u32) {
        self.ring.put_used(chain, 0);
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += u64::from(length);
    }

    /// Returns the chain of a dropped frame and counts the drop.
    #[inline]
    pub(crate) fn drop_frame(&mut self, chain: u16, length: u32, reason: DropReason) {
        self.finish(chain, length);
        self.counters.drops.count(reason);
    }

    /// Returns whether a frame to this port must wait behind older ones.
    #[inline]
    pub(crate) fn must_wait(&self, to: u16, full: &Full) -> bool {
        full.contains(&to) || self.backlog.deferred.waits_for(to)
    }

    /// Defers the frames in front of the first frame that need not wait (head-of-line blocking), or
    /// drops them if deferring has been impossible for too long. Returns the number of completed
    /// frames, or 0 if all frames must wait. The first `known` frames have waited, and were counted,
    /// before.
    #[cold]
    pub(crate) fn defer_blocking(
        &mut self,
        entries: &[BatchEntry<'_, '_>],
        full: &Full,
        known: usize,
        now: Instant,
    ) -> usize {
        let waits = |entry: &BatchEntry<'_, '_>| match entry.target {
            Target::Port(to) => self.must_wait(to, full),
            _ => false,
        };
        let Some(count) = entries.iter().position(|entry| !waits(entry)) else {
            return 0;
        };
        for (index, entry) in entries.iter().take(count).enumerate() {
            let Target::Port(to) = entry.target else {
                return index;
            };
            let (rest, checked) = (entry.rest(), entry.checked());
            let deferred = &mut self.backlog.deferred;
            if deferred.push(to, &entry.head, rest, checked, entry.segments, now) {
                self.finish(entry.chain, entry.head.length);
                self.peers.add(to, 1, entry.head.length.into());
                self.counters.backpressured += u64::from(index >= known);
            } else if self.backlog.stall(now) {
                self.drop_frame(entry.chain, entry.head.length, DropReason::ReceiverStuck);
            } else {
                return index;
            }
        }
        count
    }

    /// Records the frames that wait in the ring: the entries from `done` on. `before` is the record of
    /// the last attempt.
    #[cold]
    pub(crate) fn wait_in_ring(
        &mut self,
        entries: &[BatchEntry<'_, '_>],
        done: usize,
        before: Option<&InRing>,
        full: Full,
        now: Instant,
    ) {
        let waited = before.map_or(0, InRing::count);
        self.counters.backpressured += entries.len().saturating_sub(waited.max(done)) as u64;
        let Some(first) = entries.get(done) else {
            return;
        };
        let left = u16::try_from(entries.len() - done).unwrap_or(BURST);
        let collected = u16::try_from(entries.len()).unwrap_or(BURST);
        // A new frame behind these is worth another attempt only if the next burst reaches it: the
        // burst has room, all available frames were collected, and the ring is not stalled.
        let retry_for_new_frames =
            collected < BURST && self.ring.seen() <= collected && !self.backlog.is_stalled();
        let still = before.filter(|_| done == 0);
        self.backlog.in_ring = Some(InRing {
            frames: left,
            since: still.map_or(now, |before| before.since),
            full,
            seen: retry_for_new_frames.then_some(left),
            cut: match first.target {
                Target::Port(to) if first.segments > 0 => Some((to, first.segments)),
                _ => None,
            },
        });
    }
}
