//! A running split ring, from the device's side (virtio 1.3, section 2.7).
//!
//! The device side uses a ring in four steps. [`Ring::collect`] reads chains that the driver made
//! available and does not take them. [`Ring::consume`] takes them. [`Ring::put_used`] writes them to
//! the used ring, always in the order in which they became available. [`Ring::publish`] advances the
//! used index and returns whether the driver wants a call. Indices are free running and wrap.
//!
//! Because of this order, the used index tells exactly which chains are completed. A back-end that is
//! killed and started again resumes at the used index, and repeats at most the burst that was in
//! progress.

use crate::chain::{Batch, Direction, Rules};
use crate::fault::RingFault;
use crate::features;
use crate::handshake::publish_then_check;
use crate::memory::GuestMemory;
use crate::raw::RingMemory;

/// A split ring that the front-end has started.
#[derive(Debug)]
pub struct Ring {
    memory: RingMemory,
    rules: Rules,
    event_idx: bool,
    in_order: bool,
    /// The next available entry to take.
    next_available: u16,
    /// The available index as last read (QEMU's `shadow_avail_idx`): the device takes entries below
    /// it without reading the index again. A read takes the cache line away from the driver, which
    /// is about to write it.
    known_available: u16,
    /// The position of the next used element.
    next_used: u16,
    /// The used index that the driver sees.
    published: u16,
    /// The driver may kick; only meaningful without `EVENT_IDX`.
    kicks_enabled: bool,
}

impl Ring {
    /// Creates a ring that resumes at position `base` of the available ring.
    #[must_use]
    pub fn new(memory: RingMemory, direction: Direction, features: u64, base: u16) -> Self {
        let used = memory.used_index();
        let ring = Self {
            memory,
            rules: Rules {
                direction,
                indirect: features & features::INDIRECT_DESC != 0,
                unread: if features::tx_offloads_negotiated(features) {
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
            kicks_enabled: true,
        };
        if !ring.event_idx {
            ring.memory.set_no_notify(false);
        }
        ring
    }

    /// Moves the ring to other addresses and keeps its indices.
    pub fn relocate(&mut self, memory: RingMemory) {
        self.memory = memory;
    }

    /// Returns the position of the first chain that was not taken, which is where the front-end
    /// resumes a ring that was stopped.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// Returns the number of descriptors.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.memory.size()
    }

    /// Reads the driver's index and returns the number of available chains.
    ///
    /// # Errors
    /// The driver's index is more than the ring's size ahead.
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

    /// Reads the driver's index, remembers it, and returns the number of available chains.
    ///
    /// # Errors
    /// The driver's index is more than the ring's size ahead.
    #[inline]
    pub fn refresh(&mut self) -> Result<u16, RingFault> {
        let count = self.available()?;
        self.known_available = self.next_available.wrapping_add(count);
        Ok(count)
    }

    /// Returns the number of chains that were available when the driver's index was last read, less
    /// those taken since. A caller that finds them too few passes this number to
    /// [`enable_kicks`](Self::enable_kicks): it waits for more chains than it has seen, not for more
    /// than have become available in the meantime.
    #[inline]
    #[must_use]
    pub fn seen(&self) -> u16 {
        self.known_available.wrapping_sub(self.next_available)
    }

    /// Adds up to `most` available chains to the batch without taking them, and stops early when
    /// the batch is full. Prefetches the first bytes of these chains and the descriptors of the
    /// chains that follow.
    ///
    /// # Errors
    /// The driver broke a rule. Chains before the invalid one are in the batch.
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

    /// Returns the number of chains known to be available; reads the driver's index only when that
    /// number is below `wanted`.
    #[inline]
    fn known(&mut self, wanted: u16) -> Result<u16, RingFault> {
        let known = self.seen();
        if known >= wanted && u32::from(known) <= self.memory.size() {
            return Ok(known);
        }
        self.refresh()
    }

    #[inline]
    fn head(&self, ahead: u16) -> u16 {
        self.memory
            .available_head(self.next_available.wrapping_add(ahead))
    }

    /// Takes the next `count` available chains.
    #[inline]
    pub fn consume(&mut self, count: u16) {
        self.next_available = self.next_available.wrapping_add(count);
    }

    /// Adds a chain to the used ring, with the number of bytes that the device wrote into it.
    #[inline]
    pub fn put_used(&mut self, head: u16, written: u32) {
        self.memory.put_used(self.next_used, head, written);
        self.next_used = self.next_used.wrapping_add(1);
    }

    /// Adds chains to the used ring that the device wrote nothing into.
    #[inline]
    pub fn put_used_run(
        &mut self,
        mut heads: impl DoubleEndedIterator<Item = u16> + ExactSizeIterator,
    ) {
        if !self.in_order {
            return heads.for_each(|head| self.put_used(head, 0));
        }
        // 2.7.9: one element, at the first chain's position and with the last chain's head, returns
        // all of them. There are at most as many chains as a batch has, so the count fits.
        let count = u16::try_from(heads.len()).unwrap_or(u16::MAX);
        if let Some(last) = heads.next_back() {
            self.memory.put_used(self.next_used, last, 0);
            self.next_used = self.next_used.wrapping_add(count);
        }
    }

    /// Returns the number of chains that were added to the used ring since the last
    /// [`publish`](Self::publish).
    #[inline]
    #[must_use]
    pub fn unpublished(&self) -> u16 {
        self.next_used.wrapping_sub(self.published)
    }

    /// Advances the used index to include every chain added since the last call. Returns true when
    /// the driver wants a call for them (2.7.7.2).
    #[inline]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        let (old, new) = (self.published, self.next_used);
        if old == new {
            return false;
        }
        self.published = new;
        publish_then_check(
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

    /// Suppresses the driver's kicks, because the worker polls the ring.
    #[inline]
    pub fn disable_kicks(&mut self) {
        // With EVENT_IDX there is nothing to do: the driver kicks only when its index passes
        // `avail_event`, which is already behind it.
        if !self.event_idx && self.kicks_enabled {
            self.memory.set_no_notify(true);
            self.kicks_enabled = false;
        }
    }

    /// Requests a kick for when the driver makes more than `seen` chains available (Linux:
    /// `vhost_enable_notify`). Returns true when it already has: then no kick may come, and the
    /// caller must read the ring again.
    ///
    /// `seen` is not always zero, because a receive ring can have too few buffers for a frame
    /// without being empty.
    ///
    /// # Errors
    /// The driver's index is more than the ring's size ahead.
    pub fn enable_kicks(&mut self, seen: u16) -> Result<bool, RingFault> {
        let event = self.next_available.wrapping_add(seen);
        let enable = || match self.event_idx {
            true => self.memory.set_avail_event(event),
            false => self.memory.set_no_notify(false),
        };
        let available = publish_then_check(enable, || self.available())?;
        self.kicks_enabled = true;
        Ok(available > seen)
    }
}
