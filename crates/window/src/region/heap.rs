//! The heap of a member: memory that its member writes, that other members copy from, and into which they copy what
//! its member waits for.
//!
//! It is lent in whole units to programs of the member; what one has is a *buffer*, some units in a row. Who has
//! which is in a [`UnitAllocator`]: for programs of a VM as locks of its kernel, so a program that ends, however it does, leaves
//! nothing behind, and no process is there that could forget.
//!
//! All members can write everything here, so nobody has a reference to it: bytes are copied in and out. Each unit
//! has a *generation*, see [`Units`]. Whoever is lent a buffer changes the numbers of its units before it writes there;
//! it changes them again before it writes over what others may still be copying. Who copies is told the generation, and
//! looks at it again afterwards: is it the same, then nobody wrote meanwhile who should not. Who copies to a buffer
//! of somebody else enters its units with that generation, and leaves them.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::HeapOwner;
use super::layout::{PAGE, UNIT};
use super::unit_allocator::{Allocation, UnitAllocator};
use super::units::Units;
use crate::raw::{Access, Mapping, SharedBytes, Words};

/// Where something is on a heap, and which generation it had there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapAddress {
    /// The first unit of it.
    pub unit: u32,
    /// The generation of its units, as long as it is there.
    pub generation: u32,
}

/// Why nothing is copied to a address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError {
    /// It is not all on the heap.
    OutOfBounds,
    /// What was there is there no more.
    Revoked,
}

/// A member's heap.
#[derive(Clone, Debug)]
pub struct Heap {
    mapping: Arc<Mapping>,
    units: Units,
    /// The memory of all units.
    bytes: SharedBytes,
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

    /// Copy bytes out, `from` where something begins; `None`, and nothing is copied, when they are not all on this
    /// heap. Good only if it [is still](Self::is_valid) there.
    #[must_use]
    pub fn read(&self, address: HeapAddress, from: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at(address, from)?, to)
    }

    /// The same into a buffer of this process, as far from where that begins.
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

    /// Copy bytes of a buffer of this process to one that somebody here waits to be filled, `from` where both begin.
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

    /// Whether `count` bytes that were read from a address are what lay there.
    #[must_use]
    pub fn is_valid(&self, address: HeapAddress, count: u64) -> bool {
        let units = at(address, 0).and_then(|at| self.units_of(at, count));
        units.is_some_and(|units| self.units.all_are(units, address.generation))
    }

    /// Whether all of so many bytes is on this heap.
    #[must_use]
    pub fn contains(&self, address: HeapAddress, count: u64) -> bool {
        at(address, 0)
            .and_then(|at| self.units_of(at, count))
            .is_some()
    }

    /// The member: borrow `length` bytes; `None` when there is no room.
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
        // Where somebody still writes for one who is gone: kept here until there is another address.
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

    /// In which units `count` bytes are, if these are all here.
    fn units_of(&self, at: u64, count: u64) -> Option<Range<u32>> {
        let end = at.checked_add(count)?.div_ceil(UNIT);
        let end = u32::try_from(end).ok()?;
        let start = u32::try_from(at / UNIT).ok()?;
        (end <= self.units.count()).then_some(start..end)
    }
}

/// Bytes from the start of the units.
fn at(address: HeapAddress, from: u64) -> Option<u64> {
    (u64::from(address.unit) * UNIT).checked_add(from)
}

/// Bytes on a member's heap that one program has, given back when dropped. They hold whatever was there before.
#[derive(Debug)]
pub struct SharedBuffer {
    heap: Heap,
    bytes: SharedBytes,
    /// Of its units.
    generation: u32,
    allocation: Allocation,
}

impl SharedBuffer {
    /// Bytes it has.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.bytes.length()
    }

    /// Copy bytes in; `None`, and nothing is copied, when there is no room for them at `at`.
    #[must_use]
    pub fn write(&mut self, at: u64, from: &[u8]) -> Option<()> {
        self.bytes.write(at, from)
    }

    /// Copy bytes out; `None`, and nothing is copied, when they are not all inside.
    #[must_use]
    pub fn read(&self, at: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at, to)
    }

    /// Where others find it.
    #[must_use]
    pub fn address(&self) -> HeapAddress {
        HeapAddress {
            unit: self.allocation.units.start,
            generation: self.generation,
        }
    }

    /// Others were told of it, and did not say that they are done: what they copy from now on is not good, and they
    /// copy nothing here any more. `None` when one of them is just doing so: it cannot be used then, and is lent again
    /// when that one has left.
    #[must_use]
    pub fn revoke(mut self) -> Option<Self> {
        let left = self.heap.units.invalidate(self.allocation.units.clone());
        self.generation = self.generation.wrapping_add(2);
        left.then_some(self)
    }

    /// Whose heap it is on.
    #[must_use]
    pub fn owner(&self) -> HeapOwner {
        self.heap.owner
    }
}

#[cfg(test)]
mod tests;
