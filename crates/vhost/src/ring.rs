//! A running split ring, from the device's side (virtio 1.3, section 2.7).
//!
//! Work flows like this: [`Ring::collect`] looks at chains the driver made available without
//! taking them; [`Ring::consume`] takes them; [`Ring::put_used`] hands them back, in the order they
//! came, always; [`Ring::publish`] makes what was handed back visible and says whether the driver
//! wants to be called. Indices are free running and wrap.
//!
//! Because of the order, the used index says exactly which chains are done with: a back-end that
//! is killed and started again goes on there, and repeats at most the burst that was in hand.

use crate::chain::{Batch, Direction, Rules};
use crate::fault::RingFault;
use crate::features;
use crate::handshake::tell_then_look;
use crate::memory::GuestMemory;
use crate::raw::RingMemory;

/// A ring that the front-end has started.
#[derive(Debug)]
pub struct Ring {
    memory: RingMemory,
    rules: Rules,
    event_idx: bool,
    in_order: bool,
    /// The next available entry to take.
    next_available: u16,
    /// The available index as last read: entries below it can be taken without asking again.
    /// Reading it takes the cache line from the driver, which is about to write it.
    known_available: u16,
    /// Where the next used element goes.
    next_used: u16,
    /// The used index the driver can see.
    published: u16,
    /// The driver is asked to kick; only meaningful without `EVENT_IDX`.
    kicks_wanted: bool,
}

impl Ring {
    /// A ring that goes on at `base` of the available ring.
    #[must_use]
    pub fn new(memory: RingMemory, direction: Direction, features: u64, base: u16) -> Self {
        let used = memory.used_index();
        let ring = Self {
            memory,
            rules: Rules {
                direction,
                indirect: features & features::INDIRECT_DESC != 0,
                unread: if features::headers_mean_something(features) {
                    0
                } else {
                    features::header_size(features)
                },
            },
            event_idx: features & features::EVENT_IDX != 0,
            in_order: features & features::IN_ORDER != 0,
            next_available: base,
            known_available: base,
            next_used: used,
            published: used,
            kicks_wanted: true,
        };
        if !ring.event_idx {
            ring.memory.set_no_notify(false);
        }
        ring
    }

    /// The same ring at other places in memory.
    pub fn relocate(&mut self, memory: RingMemory) {
        self.memory = memory;
    }

    /// Where the front-end may go on when the ring is stopped: the first chain not taken.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// The number of descriptors.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.memory.size()
    }

    /// Chains that can be taken now.
    ///
    /// # Errors
    /// The driver's index is impossible.
    #[inline]
    pub fn available(&self) -> Result<u16, RingFault> {
        let index = self.memory.available_index();
        let count = index.wrapping_sub(self.next_available);
        if u32::from(count) > self.memory.size() {
            return Err(RingFault::AvailableIndex {
                index,
                seen: self.next_available,
                size: self.memory.size(),
            });
        }
        Ok(count)
    }

    /// Ask the driver for its index; the chains that can be taken now.
    ///
    /// # Errors
    /// The driver's index is impossible.
    #[inline]
    pub fn look(&mut self) -> Result<u16, RingFault> {
        let count = self.available()?;
        self.known_available = self.next_available.wrapping_add(count);
        Ok(count)
    }

    /// Chains that could be taken when the driver was last asked, less those taken since. Whoever
    /// found them too few waits for more than these ([`ask_for_kick`](Self::ask_for_kick)), not
    /// for more than there are meanwhile.
    #[inline]
    #[must_use]
    pub fn seen(&self) -> u16 {
        self.known_available.wrapping_sub(self.next_available)
    }

    /// Look at up to `most` available chains and add them to the batch, stopping early when it
    /// is full; takes none of them. Their first bytes are on their way into the cache when this
    /// returns, and so are the descriptors of those that may follow.
    ///
    /// # Errors
    /// The driver broke a rule. Chains before the broken one are in the batch.
    #[inline]
    pub fn collect<'m>(
        &mut self,
        memory: &'m GuestMemory,
        most: u16,
        batch: &mut Batch<'m>,
    ) -> Result<(), RingFault> {
        let known = self.known(most)?;
        let count = known.min(most);
        for ahead in 0..count {
            self.memory.prefetch_descriptor(self.head(ahead));
        }
        // Eight used elements share a cache line.
        for ahead in (0..count.saturating_add(8)).step_by(8) {
            self.memory
                .prefetch_used(self.next_used.wrapping_add(ahead));
        }
        for ahead in 0..count {
            let head = self.head(ahead);
            if batch.is_full() || !batch.push(&self.memory, memory, head, self.rules)? {
                break;
            }
            batch.prefetch_last(self.rules);
        }
        for ahead in count..known.min(count.saturating_add(most)) {
            self.memory.prefetch_descriptor(self.head(ahead));
        }
        Ok(())
    }

    /// Chains known to be available; asks the driver only when they are fewer than `wanted`.
    #[inline]
    fn known(&mut self, wanted: u16) -> Result<u16, RingFault> {
        let known = self.seen();
        if known >= wanted && u32::from(known) <= self.memory.size() {
            return Ok(known);
        }
        self.look()
    }

    #[inline]
    fn head(&self, ahead: u16) -> u16 {
        self.memory
            .available_head(self.next_available.wrapping_add(ahead))
    }

    /// Take the next `count` available chains.
    #[inline]
    pub fn consume(&mut self, count: u16) {
        self.next_available = self.next_available.wrapping_add(count);
    }

    /// Hand a chain back, with the number of bytes written into it.
    #[inline]
    pub fn put_used(&mut self, head: u16, written: u32) {
        self.memory.put_used(self.next_used, head, written);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Hand back chains that nothing was written into.
    #[inline]
    pub fn put_used_run(
        &mut self,
        mut heads: impl DoubleEndedIterator<Item = u16> + ExactSizeIterator,
    ) {
        if !self.in_order {
            return heads.for_each(|head| self.put_used(head, 0));
        }
        // 2.7.9: one element stands for all, at the place of the first, by the head of the last.
        // Never more than a batch.
        let count = u16::try_from(heads.len()).unwrap_or(u16::MAX);
        if let Some(last) = heads.next_back() {
            self.memory.put_used(self.next_used, last, 0);
            self.next_used = self.next_used.wrapping_add(count);
        }
    }

    /// Let the driver see what was handed back. True when it wants a call for it (2.7.7.2).
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return false;
        }
        self.published = new;
        tell_then_look(
            || self.memory.publish_used(old, new),
            || {
                if !self.event_idx {
                    return !self.memory.no_interrupt();
                }
                // vring_need_event (2.7.7.2): is `used_event` in old .. new?
                let event = self.memory.used_event();
                new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
            },
        )
    }

    /// Tell the driver that it need not kick, because we look by ourselves.
    #[inline]
    pub fn suppress_kicks(&mut self) {
        // With EVENT_IDX there is nothing to do: the event index lies behind, and the driver
        // kicks only when it passes it.
        if !self.event_idx && self.kicks_wanted {
            self.memory.set_no_notify(true);
            self.kicks_wanted = false;
        }
    }

    /// Ask the driver to kick when it makes more available than the `seen` chains we know of.
    /// True when it already has: then no kick may come, and the ring must be looked at again.
    ///
    /// A receive ring may be too short for a frame without being empty; hence `seen`, not zero.
    ///
    /// # Errors
    /// The driver's index is impossible.
    pub fn ask_for_kick(&mut self, seen: u16) -> Result<bool, RingFault> {
        let event = self.next_available.wrapping_add(seen);
        let wish = || match self.event_idx {
            true => self.memory.set_avail_event(event),
            false => self.memory.set_no_notify(false),
        };
        let available = tell_then_look(wish, || self.available())?;
        self.kicks_wanted = true;
        Ok(available > seen)
    }
}
