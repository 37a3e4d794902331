//! Walks and checks descriptor chains (virtio 1.3, section 2.7.5). No other code in the workspace
//! follows a chain.

use arrayvec::ArrayVec;
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::fault::RingFault;
use crate::limits::{BATCH, BATCH_SPANS, MAX_CHAIN};
use crate::memory::GuestMemory;
use crate::raw::{Descriptor, RingMemory, Span};

/// Whether the device reads or writes the buffers of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads the buffers: a transmit ring.
    Readable,
    /// The device writes the buffers: a receive ring.
    Writable,
}

impl Direction {
    /// Returns the descriptor flags of a chain of one direct buffer.
    #[inline]
    fn flags(self) -> u32 {
        match self {
            Self::Readable => 0,
            Self::Writable => VRING_DESC_F_WRITE,
        }
    }
}

/// One chain of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// The index of the first descriptor, which the used ring returns to the driver.
    pub head: u16,
    /// The length of all buffers, in bytes.
    pub bytes: u32,
    /// The chain's spans are `first .. first + count` of the batch.
    first: usize,
    count: usize,
}

/// Chains that were read from a ring together, and the spans of their buffers.
#[derive(Debug, Default)]
pub struct Batch<'m> {
    chains: ArrayVec<Chain, BATCH>,
    spans: ArrayVec<Span<'m>, BATCH_SPANS>,
}

impl<'m> Batch<'m> {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the chains, in the order in which the driver made them available.
    #[inline]
    #[must_use]
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// Returns the spans of a chain of this batch.
    #[inline]
    #[must_use]
    pub fn spans(&self, chain: &Chain) -> &[Span<'m>] {
        let first = chain.first;
        self.spans.get(first..first + chain.count).unwrap_or(&[])
    }

    /// Removes all chains.
    #[inline]
    pub fn clear(&mut self) {
        self.chains.clear();
        self.spans.clear();
    }

    /// Returns whether the batch has no room for another chain.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.chains.is_full()
    }

    /// Prefetches the beginning of the last chain.
    #[inline(always)]
    pub(crate) fn prefetch_last(&self, rules: Rules) {
        let first = self
            .chains
            .last()
            .and_then(|chain| self.spans.get(chain.first));
        match (first, rules.direction) {
            (Some(span), Direction::Readable) => span.skip(rules.unread).prefetch_read(),
            (Some(span), Direction::Writable) => span.prefetch_write(),
            (None, _) => {}
        }
    }

    /// Walks the chain at `head` and adds it. Returns `Ok(false)` when the chain does not fit into
    /// what is left of the batch: the caller handles the batch and tries again.
    ///
    /// # Errors
    /// The chain breaks a rule; the batch is unchanged.
    #[inline(always)]
    pub fn push(
        &mut self,
        ring: &RingMemory,
        memory: &'m GuestMemory,
        head: u16,
        rules: Rules,
    ) -> Result<bool, RingFault> {
        if u32::from(head) >= ring.size() {
            return Err(RingFault::Head(head));
        }
        let descriptor = ring.descriptor(head);
        // Nearly all chains are one buffer in one region.
        if u32::from(descriptor.flags) == rules.direction.flags() && descriptor.length > 0 {
            if let Some(span) = memory.contiguous(descriptor.address, descriptor.length) {
                return Ok(self.push_span(head, span));
            }
        }
        self.push_walked(ring, memory, head, descriptor, rules)
    }

    #[inline(always)]
    fn push_span(&mut self, head: u16, span: Span<'m>) -> bool {
        if self.chains.is_full() || self.spans.is_full() {
            return false;
        }
        let (bytes, first) = (span.length(), self.spans.len());
        self.spans.push(span);
        self.chains.push(Chain {
            head,
            bytes,
            first,
            count: 1,
        });
        true
    }

    #[inline(never)]
    fn push_walked(
        &mut self,
        ring: &RingMemory,
        memory: &'m GuestMemory,
        head: u16,
        descriptor: Descriptor,
        rules: Rules,
    ) -> Result<bool, RingFault> {
        let first = self.spans.len();
        let mut walk = Walk {
            bytes: 0,
            steps: 0,
            rules,
            spans: &mut self.spans,
        };
        let fits = match walk.chain(ring, memory, descriptor) {
            Ok(bytes) => {
                let count = self.spans.len() - first;
                let chain = Chain {
                    head,
                    bytes,
                    first,
                    count,
                };
                self.chains.try_push(chain).is_ok()
            }
            // The chain may fit into the next batch, which has all its spans free.
            Err(RingFault::TooManyPieces) if first > 0 => false,
            Err(fault) => {
                self.spans.truncate(first);
                return Err(fault);
            }
        };
        if !fits {
            self.spans.truncate(first);
        }
        Ok(fits)
    }
}

/// The rules that a ring's chains must obey.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether the device reads or writes the buffers.
    pub direction: Direction,
    /// The driver negotiated indirect descriptors.
    pub indirect: bool,
    /// Bytes at the beginning of each chain that the switch does not read, so that they need no
    /// prefetch.
    pub unread: u32,
}

#[inline]
fn has(descriptor: &Descriptor, flag: u32) -> bool {
    u32::from(descriptor.flags) & flag != 0
}

/// The state of a walk along one chain.
struct Walk<'w, 'm> {
    bytes: u32,
    steps: u32,
    rules: Rules,
    spans: &'w mut ArrayVec<Span<'m>, BATCH_SPANS>,
}

impl<'m> Walk<'_, 'm> {
    /// Follows a chain from its first descriptor and adds a span for every piece of every buffer;
    /// returns the chain's length in bytes.
    fn chain(
        &mut self,
        ring: &RingMemory,
        memory: &'m GuestMemory,
        mut descriptor: Descriptor,
    ) -> Result<u32, RingFault> {
        loop {
            if has(&descriptor, VRING_DESC_F_INDIRECT) {
                if !self.rules.indirect {
                    return Err(RingFault::Indirect("used without being negotiated"));
                }
                self.table(memory, &descriptor)?;
                return Ok(self.bytes);
            }
            self.buffer(memory, &descriptor)?;
            if !has(&descriptor, VRING_DESC_F_NEXT) {
                return Ok(self.bytes);
            }
            if u32::from(descriptor.next) >= ring.size() {
                return Err(RingFault::Next(descriptor.next));
            }
            descriptor = ring.descriptor(descriptor.next);
        }
    }

    /// Adds one buffer.
    fn buffer(
        &mut self,
        memory: &'m GuestMemory,
        descriptor: &Descriptor,
    ) -> Result<(), RingFault> {
        self.steps += 1;
        if self.steps > MAX_CHAIN {
            return Err(RingFault::ChainTooLong);
        }
        match (self.rules.direction, has(descriptor, VRING_DESC_F_WRITE)) {
            (Direction::Readable, true) => {
                return Err(RingFault::Direction("writable in a transmit ring"));
            }
            (Direction::Writable, false) => {
                return Err(RingFault::Direction("read-only in a receive ring"));
            }
            _ => {}
        }
        if descriptor.length == 0 {
            return Err(RingFault::Empty);
        }
        self.bytes = self
            .bytes
            .checked_add(descriptor.length)
            .ok_or(RingFault::TooManyBytes)?;
        memory.translate(descriptor.address, descriptor.length, |span| {
            self.spans
                .try_push(span)
                .map_err(|_| RingFault::TooManyPieces)
        })
    }

    /// Adds the buffers of an indirect table, which ends the chain (2.7.5.3).
    fn table(&mut self, memory: &'m GuestMemory, indirect: &Descriptor) -> Result<(), RingFault> {
        if has(indirect, VRING_DESC_F_NEXT) {
            return Err(RingFault::Indirect("followed by another"));
        }
        if indirect.length == 0 || indirect.length % Descriptor::SIZE != 0 {
            return Err(RingFault::Indirect(
                "not a whole number of descriptors long",
            ));
        }
        let count = indirect.length / Descriptor::SIZE;
        let table = memory
            .contiguous(indirect.address, indirect.length)
            .ok_or(RingFault::Indirect("not in one memory region"))?;
        let mut index = 0;
        loop {
            let descriptor = table
                .descriptor(u32::from(index))
                .ok_or(RingFault::Next(index))?;
            if has(&descriptor, VRING_DESC_F_INDIRECT) {
                return Err(RingFault::Indirect("inside another"));
            }
            self.buffer(memory, &descriptor)?;
            if !has(&descriptor, VRING_DESC_F_NEXT) {
                return Ok(());
            }
            index = descriptor.next;
            if u32::from(index) >= count {
                return Err(RingFault::Next(index));
            }
        }
    }
}
