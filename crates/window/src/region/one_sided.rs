//! One-sided access to a buffer on a heap: the buffer's owner takes no part in it.
//!
//! A program that writes marks each unit as being written while it does so, one at a time. So it
//! never writes into memory that has a new owner, however the owner of the buffer ended. Several
//! programs may access one buffer at the same time: a writer waits for another one that writes to
//! the same unit, for a bounded time, because that one may have ended there.
//!
//! The owner itself uses the buffer by loads, stores and atomic operations, without marks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::heap::{AccessError, Heap, HeapAddress, at};
use super::layout::UNIT;
use super::units::WriteStart;

/// An atomic operation. All results wrap; for a 32-bit word, the upper half of a value is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// Adds.
    Add(u64),
    /// Bitwise and.
    And(u64),
    /// Bitwise or.
    Or(u64),
    /// Bitwise exclusive or.
    Xor(u64),
    /// Stores a value.
    Swap(u64),
    /// Stores `value` if the word is `expected`.
    CompareAndSwap {
        /// The value to compare with.
        expected: u64,
        /// The value to store.
        value: u64,
    },
}

/// The width of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 32 bits.
    Word,
    /// 64 bits.
    LongWord,
}

impl Heap {
    /// Copies bytes into a buffer, from its offset `from`.
    ///
    /// # Errors
    /// See [`AccessError`]; a part of the bytes may have been copied.
    pub fn put_bytes(
        &self,
        address: HeapAddress,
        from: u64,
        bytes: &[u8],
    ) -> Result<(), AccessError> {
        let mut place = at(address, from).ok_or(AccessError::OutOfBounds)?;
        self.units_of(place, bytes.len() as u64)
            .ok_or(AccessError::OutOfBounds)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = usize::try_from(UNIT - place % UNIT).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            self.write_in_unit(place, address.generation, || self.bytes.write(place, now))?;
            place += now.len() as u64;
            rest = later;
        }
        Ok(())
    }

    /// Copies bytes of a buffer out, from its offset `from`.
    ///
    /// # Errors
    /// See [`AccessError`]; `to` then has other bytes.
    pub fn get_bytes(
        &self,
        address: HeapAddress,
        from: u64,
        to: &mut [u8],
    ) -> Result<(), AccessError> {
        let place = at(address, from).ok_or(AccessError::OutOfBounds)?;
        let units = self.units_of(place, to.len() as u64);
        let units = units.ok_or(AccessError::OutOfBounds)?;
        self.bytes.read(place, to).ok_or(AccessError::OutOfBounds)?;
        match self.units.are_allocated(units, address.generation) {
            true => Ok(()),
            false => Err(AccessError::Revoked),
        }
    }

    /// Loads the 64-bit word at offset `from` of a buffer. What its writer stored before the word, by a store with
    /// release order, is visible afterwards.
    ///
    /// # Errors
    /// See [`AccessError`]. A word that is not aligned is out of bounds.
    pub fn load(&self, address: HeapAddress, from: u64) -> Result<u64, AccessError> {
        let place = at(address, from).ok_or(AccessError::OutOfBounds)?;
        let units = self.units_of(place, size_of::<u64>() as u64);
        let units = units.ok_or(AccessError::OutOfBounds)?;
        let word = self.bytes.long_word(place);
        let value = word
            .ok_or(AccessError::OutOfBounds)?
            .load(Ordering::Acquire);
        match self.units.are_allocated(units, address.generation) {
            true => Ok(value),
            false => Err(AccessError::Revoked),
        }
    }

    /// Changes the word at offset `from` of a buffer, and returns its value before.
    ///
    /// # Errors
    /// See [`AccessError`]; nothing is changed then. A word that is not aligned is out of bounds.
    pub fn atomic(
        &self,
        address: HeapAddress,
        from: u64,
        width: Width,
        operation: Atomic,
    ) -> Result<u64, AccessError> {
        let place = at(address, from).ok_or(AccessError::OutOfBounds)?;
        self.units_of(place, 1).ok_or(AccessError::OutOfBounds)?;
        self.write_in_unit(place, address.generation, || match width {
            Width::Word => self.bytes.word(place).map(|word| word.apply(operation)),
            Width::LongWord => self
                .bytes
                .long_word(place)
                .map(|word| word.apply(operation)),
        })
    }

    /// Runs `write`, which writes only to the unit of `place`, while the unit is marked as being
    /// written.
    fn write_in_unit<T>(
        &self,
        place: u64,
        generation: u32,
        write: impl FnOnce() -> Option<T>,
    ) -> Result<T, AccessError> {
        let unit = u32::try_from(place / UNIT).map_err(|_| AccessError::OutOfBounds)?;
        match self.units.await_write(unit, generation) {
            WriteStart::Begun => {
                let written = write();
                self.units.end_write(unit..unit + 1);
                written.ok_or(AccessError::OutOfBounds)
            }
            WriteStart::Revoked => Err(AccessError::Revoked),
            WriteStart::Busy => Err(AccessError::Busy),
        }
    }
}

/// A word that atomic operations change.
trait AtomicWord {
    /// Returns the value before.
    fn apply(&self, operation: Atomic) -> u64;
}

macro_rules! atomic_word {
    ($atomic:ty, $value:ty) => {
        impl AtomicWord for $atomic {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::unnecessary_cast,
                clippy::useless_conversion,
                reason = "the upper half is ignored"
            )]
            fn apply(&self, operation: Atomic) -> u64 {
                let order = Ordering::SeqCst;
                u64::from(match operation {
                    Atomic::Add(value) => self.fetch_add(value as $value, order),
                    Atomic::And(value) => self.fetch_and(value as $value, order),
                    Atomic::Or(value) => self.fetch_or(value as $value, order),
                    Atomic::Xor(value) => self.fetch_xor(value as $value, order),
                    Atomic::Swap(value) => self.swap(value as $value, order),
                    Atomic::CompareAndSwap { expected, value } => {
                        let (expected, value) = (expected as $value, value as $value);
                        let swapped = self.compare_exchange(expected, value, order, order);
                        swapped.unwrap_or_else(|before| before)
                    }
                })
            }
        }
    };
}

atomic_word!(AtomicU32, u32);
atomic_word!(AtomicU64, u64);

#[cfg(test)]
mod tests;
