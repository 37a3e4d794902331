//! The tree's only walk over a descriptor chain (virtio 1.3, section 2.7.5).

use arrayvec::ArrayVec;
use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::fault::RingFault;
use crate::limits::{BATCH, BATCH_SPANS, MAX_CHAIN};
use crate::memory::GuestMemory;
use crate::raw::{Descriptor, RingMemory, Span};

/// Which way the buffers of a ring go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The device reads them: what the guest transmits.
    Readable,
    /// The device writes them: where the guest receives.
    Writable,
}

/// One chain of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Its head, which goes back to the driver in the used ring.
    pub head: u16,
    /// Its bytes.
    pub bytes: u32,
    /// Its spans: `first .. first + count` of the batch.
    first: usize,
    count: usize,
}

/// Chains taken from a ring together, and the spans they are made of.
#[derive(Debug, Default)]
pub struct Batch<'m> {
    chains: ArrayVec<Chain, BATCH>,
    spans: ArrayVec<Span<'m>, BATCH_SPANS>,
}

impl<'m> Batch<'m> {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The chains, in the order the driver made them available.
    #[inline]
    #[must_use]
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The spans of a chain of this batch.
    #[inline]
    #[must_use]
    pub fn spans(&self, chain: &Chain) -> &[Span<'m>] {
        let first = chain.first;
        self.spans.get(first..first + chain.count).unwrap_or(&[])
    }

    /// Forget all chains.
    #[inline]
    pub fn clear(&mut self) {
        self.chains.clear();
        self.spans.clear();
    }

    /// Whether there is no room for another chain.
    #[inline]
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.chains.is_full()
    }

    /// Walk the chain at `head` and add it. `Ok(false)` means that it does not fit behind the
    /// others: handle those first.
    ///
    /// # Errors
    /// The chain breaks a rule; the batch is as it was.
    #[inline]
    pub fn push(
        &mut self,
        ring: &RingMemory,
        memory: &'m GuestMemory,
        head: u16,
        direction: Direction,
        indirect: bool,
    ) -> Result<bool, RingFault> {
        let first = self.spans.len();
        let walked = walk(&mut self.spans, ring, memory, head, direction, indirect);
        let fits = match walked {
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

/// Follow a chain, translating every buffer into `spans`; returns its bytes.
#[inline]
fn walk<'m>(
    spans: &mut ArrayVec<Span<'m>, BATCH_SPANS>,
    ring: &RingMemory,
    memory: &'m GuestMemory,
    head: u16,
    direction: Direction,
    indirect: bool,
) -> Result<u32, RingFault> {
    if u32::from(head) >= ring.size() {
        return Err(RingFault::Head(head));
    }
    let mut walk = Walk {
        bytes: 0,
        steps: 0,
        direction,
    };
    let mut descriptor = ring.descriptor(head);
    loop {
        if has(&descriptor, VRING_DESC_F_INDIRECT) {
            if !indirect {
                return Err(RingFault::Indirect("used without being negotiated"));
            }
            walk.table(spans, memory, &descriptor)?;
            return Ok(walk.bytes);
        }
        walk.buffer(spans, memory, &descriptor)?;
        if !has(&descriptor, VRING_DESC_F_NEXT) {
            return Ok(walk.bytes);
        }
        if u32::from(descriptor.next) >= ring.size() {
            return Err(RingFault::Next(descriptor.next));
        }
        descriptor = ring.descriptor(descriptor.next);
    }
}

#[inline]
fn has(descriptor: &Descriptor, flag: u32) -> bool {
    u32::from(descriptor.flags) & flag != 0
}

/// Progress along one chain.
struct Walk {
    bytes: u32,
    steps: u32,
    direction: Direction,
}

impl Walk {
    /// Take one buffer.
    #[inline]
    fn buffer<'m>(
        &mut self,
        spans: &mut ArrayVec<Span<'m>, BATCH_SPANS>,
        memory: &'m GuestMemory,
        descriptor: &Descriptor,
    ) -> Result<(), RingFault> {
        self.steps += 1;
        if self.steps > MAX_CHAIN {
            return Err(RingFault::ChainTooLong);
        }
        match (self.direction, has(descriptor, VRING_DESC_F_WRITE)) {
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
            spans.try_push(span).map_err(|_| RingFault::TooManyPieces)
        })
    }

    /// Take the buffers of an indirect table, which ends the chain (2.7.5.3).
    #[inline(never)]
    fn table<'m>(
        &mut self,
        spans: &mut ArrayVec<Span<'m>, BATCH_SPANS>,
        memory: &'m GuestMemory,
        indirect: &Descriptor,
    ) -> Result<(), RingFault> {
        if has(indirect, VRING_DESC_F_NEXT) {
            return Err(RingFault::Indirect("followed by another"));
        }
        if indirect.length == 0 || indirect.length % Descriptor::SIZE != 0 {
            return Err(RingFault::Indirect(
                "not a whole number of descriptors long",
            ));
        }
        let count = indirect.length / Descriptor::SIZE;
        let mut table = None;
        memory.translate(indirect.address, indirect.length, |span| {
            match table.replace(span) {
                None => Ok(()),
                Some(_) => Err(RingFault::Indirect("split between two memory regions")),
            }
        })?;
        let table = table.ok_or(RingFault::Empty)?;
        let mut index = 0;
        loop {
            let descriptor = table
                .descriptor(u32::from(index))
                .ok_or(RingFault::Next(index))?;
            if has(&descriptor, VRING_DESC_F_INDIRECT) {
                return Err(RingFault::Indirect("inside another"));
            }
            self.buffer(spans, memory, &descriptor)?;
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
