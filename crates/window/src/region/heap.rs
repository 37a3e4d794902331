//! The heap of a seat: memory that its member writes, that other members copy from, and into which they copy what
//! its member waits for.
//!
//! It is lent in whole units to programs of the member; what one has is a *stretch*, some units in a row. Who has
//! which is in a [`List`]: for programs of a VM as locks of its kernel, so a program that ends, however it does, leaves
//! nothing behind, and no process is there that could forget.
//!
//! All members can write everything here, so nobody has a reference to it: bytes are copied in and out. Each unit
//! has a *number*, see [`Units`]. Whoever is lent a stretch changes the numbers of its units before it writes there;
//! it changes them again before it writes over what others may still be copying. Who copies is told the number, and
//! looks at it again afterwards: is it the same, then nobody wrote meanwhile who should not. Who copies to a stretch
//! of somebody else enters its units with that number, and leaves them.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::home::Home;
use super::layout::{PAGE, UNIT};
use super::list::{Held, List};
use super::units::Units;
use crate::raw::{Access, Foreign, Mapping, Words};

/// Where something is on a heap, and which number it had there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first unit of it.
    pub unit: u32,
    /// The number of its units, as long as it is there.
    pub number: u32,
}

/// Why nothing is copied to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is not all on the heap.
    Outside,
    /// What was there is there no more.
    Withdrawn,
}

/// A member's heap.
#[derive(Clone, Debug)]
pub struct Heap {
    mapping: Arc<Mapping>,
    units: Units,
    /// The memory of all units.
    bytes: Foreign,
    home: Home,
}

impl Heap {
    pub(super) fn new(mapping: Mapping, units: u32, home: Home) -> Option<Self> {
        let mapping = Arc::new(mapping);
        let length = u64::from(units) * UNIT;
        Some(Self {
            bytes: Foreign::new(&mapping, PAGE, length, Access::ReadWrite)?,
            units: Units::new(Words::new(&mapping, 0, units)?),
            mapping,
            home,
        })
    }

    /// Copy bytes out, `from` where something begins; `None`, and nothing is copied, when they are not all on this
    /// heap. Good only if it [is still](Self::is_still) there.
    #[must_use]
    pub fn read(&self, place: Place, from: u64, to: &mut [u8]) -> Option<()> {
        self.bytes.read(at(place, from)?, to)
    }

    /// The same into a stretch of this process, as far from where that begins.
    #[must_use]
    pub fn carry(&self, place: Place, from: u64, to: &mut Stretch, count: usize) -> Option<()> {
        self.bytes.carry(at(place, from)?, &to.bytes, from, count)
    }

    /// Copy bytes of a stretch of this process to one that somebody here waits to be filled, `from` where both begin.
    ///
    /// # Errors
    /// See [`Refused`]; nothing is copied then.
    pub fn deliver(
        &self,
        place: Place,
        from: u64,
        stretch: &Stretch,
        count: usize,
    ) -> Result<(), Refused> {
        let to = at(place, from).ok_or(Refused::Outside)?;
        let units = self.units_of(to, count as u64).ok_or(Refused::Outside)?;
        if !self.units.enter(units.clone(), place.number) {
            return Err(Refused::Withdrawn);
        }
        let copied = stretch.bytes.carry(from, &self.bytes, to, count);
        self.units.leave(units);
        copied.ok_or(Refused::Outside)
    }

    /// Whether `count` bytes that were read from a place are what lay there.
    #[must_use]
    pub fn is_still(&self, place: Place, count: u64) -> bool {
        let units = at(place, 0).and_then(|at| self.units_of(at, count));
        units.is_some_and(|units| self.units.have(units, place.number))
    }

    /// Whether all of so many bytes is on this heap.
    #[must_use]
    pub fn holds(&self, place: Place, count: u64) -> bool {
        at(place, 0)
            .and_then(|at| self.units_of(at, count))
            .is_some()
    }

    /// The member: borrow `length` bytes; `None` when there is no room.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn lend(&self, list: &List, length: usize) -> Result<Option<Stretch>, Errno> {
        let units = (length.max(1) as u64).div_ceil(UNIT);
        let Ok(units) = u32::try_from(units) else {
            return Ok(None);
        };
        // Where somebody still writes for one who is gone: kept here until there is another place.
        let mut avoided = Vec::new();
        while let Some(held) = list.take(units, self.units.count())? {
            if let Some(number) = self.units.renew(held.units.clone()) {
                return Ok(self.stretch(held, number, length));
            }
            avoided.push(held);
        }
        Ok(None)
    }

    fn stretch(&self, held: Held, number: u32, length: usize) -> Option<Stretch> {
        let start = PAGE + u64::from(held.units.start) * UNIT;
        let bytes = Foreign::new(&self.mapping, start, length as u64, Access::ReadWrite)?;
        Some(Stretch {
            heap: self.clone(),
            bytes,
            number,
            held,
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
fn at(place: Place, from: u64) -> Option<u64> {
    (u64::from(place.unit) * UNIT).checked_add(from)
}

/// Bytes on a member's heap that one program has, given back when dropped. They hold whatever was there before.
#[derive(Debug)]
pub struct Stretch {
    heap: Heap,
    bytes: Foreign,
    /// Of its units.
    number: u32,
    held: Held,
}

impl Stretch {
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
    pub fn place(&self) -> Place {
        Place {
            unit: self.held.units.start,
            number: self.number,
        }
    }

    /// Others were told of it, and did not say that they are done: what they copy from now on is not good, and they
    /// copy nothing here any more. `None` when one of them is just doing so: it cannot be used then, and is lent again
    /// when that one has left.
    #[must_use]
    pub fn withdraw(mut self) -> Option<Self> {
        let left = self.heap.units.retire(self.held.units.clone());
        self.number = self.number.wrapping_add(2);
        left.then_some(self)
    }

    /// Whose heap it is on.
    #[must_use]
    pub fn home(&self) -> Home {
        self.heap.home
    }
}

#[cfg(test)]
mod tests;
