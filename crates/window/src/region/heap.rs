//! The heap of a member: other members of the region copy messages out of it, and copy messages
//! into buffers in it that the member waits for.
//!
//! Programs of the member allocate it in whole units; a *buffer* is a range of consecutive units. A
//! [`UnitAllocator`] keeps which units are allocated. For programs of a VM it keeps them as file
//! locks of the VM's kernel. So the kernel frees the units of a program that ends, however it ends,
//! and no process is needed that could lose track of them.
//!
//! All members can write everything here, so no program makes a reference into it: bytes are copied
//! in and out. Each unit has a *generation*, see [`Units`]. A program that allocates a buffer
//! changes the generations of its units before it writes there, and changes them again before it
//! overwrites what others may still be copying. A reader receives the generation with the address,
//! and checks it after the copy: if it is unchanged, the copied bytes are the message's. A program
//! that copies into a buffer of another member marks its units as being written while it does so,
//! which fails if their generation has changed.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::io::Errno;

use super::heap_owner::HeapOwner;
use super::layout::{PAGE, UNIT};
use super::unit_allocator::{Allocation, UnitAllocator};
use super::units::Units;
use crate::raw::{Access, Mapping, SharedBytes, Words};

/// The address of a buffer on a heap, with the generation of its units. The generation has the role
/// of a remote key in RDMA: the address is valid only as long as the generation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAddress {
    /// The first unit.
    pub unit: u32,
    /// The generation that the units have as long as the address is valid.
    pub generation: u32,
}

/// Why nothing was copied to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// The bytes are not all on the heap.
    OutOfBounds,
    /// The owner has revoked the buffer, or does not have it any more.
    Revoked,
    /// Another program writes there, or ended while it did.
    Busy,
}

/// A member's heap.
#[derive(Clone, Debug)]
pub struct Heap {
    mapping: Arc<Mapping>,
    pub(super) units: Units,
    /// The memory of all units.
    pub(super) bytes: SharedBytes,
    owner: HeapOwner,
}

impl Heap {
    pub(super) fn new(mapping: Mapping, units: u32, owner: HeapOwner) -> Option<Self> {
        let mapping = Arc::new(mapping);
        let length = u64::from(units) * UNIT;
        Some(Self {
            bytes: SharedBytes::new(&mapping, PAGE, length, Access::ReadWrite)?,
            units: Units::new(Words::new(&mapping, 0, units)?),
            mapping,
            owner,
        })
    }

    /// Copies bytes out, from offset `from` of a buffer; `None`, and copies nothing, if they are
    /// not all on this heap. The result is good only if the address [is valid](Self::is_valid)
    /// afterwards.
    #[must_use]
    pub fn read(&self, address: HeapAddress, from: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at(address, from)?, to)
    }

    /// The same into a buffer of this process, at the same offset.
    #[must_use]
    pub fn copy_to(
        &self,
        address: HeapAddress,
        from: u64,
        to: &mut SharedBuffer,
        count: usize,
    ) -> Option<()> {
        self.bytes
            .copy_to(at(address, from)?, &to.bytes, from, count)
    }

    /// Copies `count` bytes from a buffer of this process into one whose owner waits for them;
    /// `from` is the offset in both.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing is copied then.
    pub fn put(
        &self,
        address: HeapAddress,
        from: u64,
        buffer: &SharedBuffer,
        count: usize,
    ) -> Result<(), AccessError> {
        let to = at(address, from).ok_or(AccessError::OutOfBounds)?;
        let units = self
            .units_of(to, count as u64)
            .ok_or(AccessError::OutOfBounds)?;
        if !self.units.begin_write(units.clone(), address.generation) {
            return Err(AccessError::Revoked);
        }
        let copied = buffer.bytes.copy_to(from, &self.bytes, to, count);
        self.units.end_write(units);
        copied.ok_or(AccessError::OutOfBounds)
    }

    /// Returns whether an address is still valid: then `count` bytes that were read from it are the
    /// owner's.
    #[must_use]
    pub fn is_valid(&self, address: HeapAddress, count: u64) -> bool {
        let units = at(address, 0).and_then(|at| self.units_of(at, count));
        units.is_some_and(|units| self.units.all_are(units, address.generation))
    }

    /// Returns whether `count` bytes at an address are all on this heap.
    #[must_use]
    pub fn contains(&self, address: HeapAddress, count: u64) -> bool {
        at(address, 0)
            .and_then(|at| self.units_of(at, count))
            .is_some()
    }

    /// Owner only: allocates `length` bytes; `None` if there is no room.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn allocate(
        &self,
        allocator: &UnitAllocator,
        length: usize,
    ) -> Result<Option<SharedBuffer>, Errno> {
        let units = (length.max(1) as u64).div_ceil(UNIT);
        let Ok(units) = u32::try_from(units) else {
            return Ok(None);
        };
        // Units that a peer of an earlier owner still writes. They are kept until other units are
        // found.
        let mut avoided = Vec::new();
        while let Some(allocation) = allocator.take(units, self.units.count())? {
            if let Some(generation) = self.units.assign(allocation.units.clone()) {
                return Ok(self.buffer(allocation, generation, length));
            }
            avoided.push(allocation);
        }
        Ok(None)
    }

    fn buffer(
        &self,
        allocation: Allocation,
        generation: u32,
        length: usize,
    ) -> Option<SharedBuffer> {
        let start = PAGE + u64::from(allocation.units.start) * UNIT;
        let bytes = SharedBytes::new(&self.mapping, start, length as u64, Access::ReadWrite)?;
        Some(SharedBuffer {
            heap: self.clone(),
            bytes,
            generation,
            allocation,
        })
    }

    /// Returns the units of `count` bytes, if all are on this heap.
    pub(super) fn units_of(&self, at: u64, count: u64) -> Option<Range<u32>> {
        let end = at.checked_add(count)?.div_ceil(UNIT);
        let end = u32::try_from(end).ok()?;
        let start = u32::try_from(at / UNIT).ok()?;
        (end <= self.units.count()).then_some(start..end)
    }
}

/// Returns an address as bytes from the start of the units.
pub(super) fn at(address: HeapAddress, from: u64) -> Option<u64> {
    (u64::from(address.unit) * UNIT).checked_add(from)
}

/// A buffer on a member's heap, freed when dropped. It holds the bytes of earlier users.
#[derive(Debug)]
pub struct SharedBuffer {
    heap: Heap,
    bytes: SharedBytes,
    /// The generation of its units.
    generation: u32,
    allocation: Allocation,
}

impl SharedBuffer {
    /// Returns the length in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Copies bytes in; `None`, and copies nothing, if they do not fit at `at`.
    #[must_use]
    pub fn write(&mut self, at: u64, from: &[u8]) -> Option<()> {
        self.bytes.write(at, from)
    }

    /// Copies bytes out; `None`, and copies nothing, if they are not all inside.
    #[must_use]
    pub fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at, to)
    }

    /// Returns the address, for other members.
    #[must_use]
    pub fn address(&self) -> HeapAddress {
        HeapAddress {
            unit: self.allocation.units.start,
            generation: self.generation,
        }
    }

    /// Returns where the bytes are in this process. Other members of the region can change them at
    /// any time.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.bytes.base()
    }

    /// Revokes the address that other members received and have not reported to be done with. What
    /// they copy out from now on is invalid, and they cannot copy into the buffer any more. `None`
    /// if one of them is writing into it now: then the buffer cannot be used, and its units can be
    /// allocated again after that member has finished.
    #[must_use]
    pub fn revoke(mut self) -> Option<Self> {
        let left = self.heap.units.invalidate(self.allocation.units.clone());
        self.generation = self.generation.wrapping_add(2);
        left.then_some(self)
    }

    /// Returns which member's heap the buffer is on.
    #[must_use]
    pub fn owner(&self) -> HeapOwner {
        self.heap.owner
    }
}

#[cfg(test)]
pub(super) mod tests;
