//! The generations of a heap's units.
//!
//! A generation identifies the current allocation of a unit: its owner increases it by two when it
//! allocates the unit, and when it revokes an address that it gave to others. A program that copies
//! *out of* a unit checks the generation afterwards. A program that copies *into* a unit, which its
//! owner waits for, makes the generation odd before and even after. That fails if the generation
//! has changed, and the unit is not allocated again before the writer has finished, even if its
//! owner has ended. So no program writes into memory that has a new owner.
//!
//! A writer that ends before it has finished leaves the generation odd: that unit is lost until the
//! region is created anew.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::raw::Words;

/// Set in a generation while a program that does not own the unit writes there.
const WRITING: u32 = 1;

/// The distance between two generations.
const STEP: u32 = 2;

/// How often a writer looks whether another one has finished: for longer than a unit takes to copy.
/// That writer may have ended, so there is a bound.
const WRITE_SPINS: u32 = 10_000;

/// Whether a program may write to a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteStart {
    /// The unit is marked as being written.
    Begun,
    /// The unit has another generation.
    Revoked,
    /// Another program has not finished.
    Busy,
}

/// The generations of the units of a heap.
#[derive(Clone, Debug)]
pub(super) struct Units {
    words: Words,
}

impl Units {
    pub(super) fn new(words: Words) -> Self {
        Self { words }
    }

    pub(super) fn count(&self) -> u32 {
        self.words.count()
    }

    /// Returns the words of those units that exist.
    fn words(&self, units: Range<u32>) -> impl Iterator<Item = &AtomicU32> {
        units.map_while(|unit| self.words.get(unit))
    }

    /// Gives free units one generation that none of them had; `None` if a writer has not finished.
    pub(super) fn assign(&self, units: Range<u32>) -> Option<u32> {
        let generations = self
            .words(units.clone())
            .map(|word| word.load(Ordering::Acquire));
        let generation = (generations.max()? & !WRITING).wrapping_add(STEP);
        let all = self.words(units).all(|word| assign(word, generation));
        // A program that sees later stores to the units also sees the generation.
        fence(Ordering::Release);
        all.then_some(generation)
    }

    /// Increases the generations of units, so that no new writer can begin; false if a writer has
    /// not finished.
    pub(super) fn invalidate(&self, units: Range<u32>) -> bool {
        let left = self
            .words(units)
            .fold(true, |left, word| invalidate(word) & left);
        // As above.
        fence(Ordering::Release);
        left
    }

    /// Returns whether all units have this generation.
    pub(super) fn all_are(&self, mut units: Range<u32>, generation: u32) -> bool {
        // Orders the loads before this with the loads of the generations.
        fence(Ordering::Acquire);
        units.all(|unit| {
            let word = self.words.get(unit);
            word.is_some_and(|word| word.load(Ordering::Acquire) == generation)
        })
    }

    /// Marks units as being written, if all have this generation.
    pub(super) fn begin_write(&self, units: Range<u32>, generation: u32) -> bool {
        for unit in units.clone() {
            if !self
                .words
                .get(unit)
                .is_some_and(|word| begin_write(word, generation))
            {
                self.end_write(units.start..unit);
                return false;
            }
        }
        true
    }

    /// Marks one unit as being written, after another program that writes it has finished.
    pub(super) fn await_write(&self, unit: u32, generation: u32) -> WriteStart {
        let Some(word) = self.words.get(unit) else {
            return WriteStart::Revoked;
        };
        for _ in 0..WRITE_SPINS {
            if begin_write(word, generation) {
                return WriteStart::Begun;
            }
            if word.load(Ordering::Acquire) & !WRITING != generation {
                return WriteStart::Revoked;
            }
            std::hint::spin_loop();
        }
        WriteStart::Busy
    }

    /// Returns whether all units have this generation, written by another program or not.
    pub(super) fn are_allocated(&self, mut units: Range<u32>, generation: u32) -> bool {
        // As in `all_are`.
        fence(Ordering::Acquire);
        units.all(|unit| {
            let word = self.words.get(unit);
            word.is_some_and(|word| word.load(Ordering::Acquire) & !WRITING == generation)
        })
    }

    /// Ends a write to units.
    pub(super) fn end_write(&self, units: Range<u32>) {
        self.words(units).for_each(end_write);
    }
}

/// The operations on the word of a unit. The loom model implements them, too.
trait GenerationWord {
    fn load(&self) -> u32;
    fn swap(&self, from: u32, to: u32) -> bool;
    /// Returns the value before.
    fn add(&self, step: u32) -> u32;
    fn clear(&self, bits: u32);
}

macro_rules! generation_word {
    ($atomic:ty) => {
        impl GenerationWord for $atomic {
            fn load(&self) -> u32 {
                self.load(Ordering::Acquire)
            }

            fn swap(&self, from: u32, to: u32) -> bool {
                let order = (Ordering::AcqRel, Ordering::Acquire);
                self.compare_exchange(from, to, order.0, order.1).is_ok()
            }

            fn add(&self, step: u32) -> u32 {
                self.fetch_add(step, Ordering::AcqRel)
            }

            fn clear(&self, bits: u32) {
                self.fetch_and(!bits, Ordering::Release);
            }
        }
    };
}

generation_word!(AtomicU32);

fn assign(word: &impl GenerationWord, generation: u32) -> bool {
    let old = word.load();
    old & WRITING == 0 && word.swap(old, generation)
}

fn invalidate(word: &impl GenerationWord) -> bool {
    word.add(STEP) & WRITING == 0
}

fn begin_write(word: &impl GenerationWord, generation: u32) -> bool {
    generation & WRITING == 0 && word.swap(generation, generation | WRITING)
}

fn end_write(word: &impl GenerationWord) {
    word.clear(WRITING);
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    use super::{GenerationWord, Ordering, assign, begin_write, end_write, invalidate};

    generation_word!(AtomicU32);

    struct Unit {
        word: AtomicU32,
        memory: UnsafeCell<()>,
    }

    impl Unit {
        /// Loom reports a concurrent access.
        fn write(&self) {
            self.memory.with_mut(|_| ());
        }
    }

    /// Runs a program that copies into a unit, concurrently with `other`.
    fn beside(other: fn(&Unit)) {
        loom::model(move || {
            let unit = Arc::new(Unit {
                word: AtomicU32::new(4),
                memory: UnsafeCell::new(()),
            });
            let writer = {
                let unit = Arc::clone(&unit);
                thread::spawn(move || {
                    // Twice, as with two chunks.
                    for _ in 0..2 {
                        if begin_write(&unit.word, 4) {
                            unit.write();
                            end_write(&unit.word);
                        }
                    }
                })
            };
            other(&unit);
            writer.join().unwrap();
        });
    }

    #[test]
    fn no_unit_is_allocated_while_a_peer_writes_it() {
        beside(|unit| {
            if assign(&unit.word, 6) {
                unit.write();
            }
        });
    }

    #[test]
    fn no_peer_writes_a_revoked_unit() {
        beside(|unit| {
            if invalidate(&unit.word) {
                unit.write();
            }
        });
    }

    #[test]
    fn a_unit_revoked_during_a_write_can_be_allocated_after_it() {
        beside(|unit| {
            invalidate(&unit.word);
            if assign(&unit.word, 8) {
                unit.write();
            }
        });
    }
}
