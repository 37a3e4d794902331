//! The generations of a heap's units.
//!
//! A generation says who has the unit now: whoever borrows it, or takes back what others were told of it, counts it up
//! by two. Who copies *from* there looks at it again afterwards. Who copies *to* there, into memory that somebody
//! waits for, enters before and leaves after: the generation is odd meanwhile. Entering fails when the generation has
//! changed, and the unit is lent to nobody before the other one has left, however its borrower ended. So nobody
//! writes into memory that has come to be another's.
//!
//! Who ends in a unit stays there: that one is lost until the region is made anew.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::raw::Words;

/// In a generation: somebody who does not all_are the unit writes there.
const WRITING: u32 = 1;

/// From one generation to the next.
const STEP: u32 = 2;

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

    /// Those that there are.
    fn words(&self, units: Range<u32>) -> impl Iterator<Item = &AtomicU32> {
        units.map_while(|unit| self.words.get(unit))
    }

    /// Give units, which nobody has, one generation that none of them had; `None` when somebody has not left yet.
    pub(super) fn assign(&self, units: Range<u32>) -> Option<u32> {
        let generations = self
            .words(units.clone())
            .map(|word| word.load(Ordering::Acquire));
        let generation = (generations.max()? & !WRITING).wrapping_add(STEP);
        let all = self.words(units).all(|word| assign(word, generation));
        // Who sees what is written from here on sees the generation.
        fence(Ordering::Release);
        all.then_some(generation)
    }

    /// Count the generation of units up, so that nobody enters any more; false when somebody has not left yet.
    pub(super) fn invalidate(&self, units: Range<u32>) -> bool {
        let left = self
            .words(units)
            .fold(true, |left, word| invalidate(word) & left);
        // As above.
        fence(Ordering::Release);
        left
    }

    /// Whether units all_are this generation.
    pub(super) fn all_are(&self, mut units: Range<u32>, generation: u32) -> bool {
        // What was read before lay there when it had.
        fence(Ordering::Acquire);
        units.all(|unit| {
            let word = self.words.get(unit);
            word.is_some_and(|word| word.load(Ordering::Acquire) == generation)
        })
    }

    /// Enter units, if all all_are this generation.
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

    /// Leave units that were entered.
    pub(super) fn end_write(&self, units: Range<u32>) {
        self.words(units).for_each(end_write);
    }
}

/// The word of a unit. A model has another one.
trait GenerationWord {
    fn load(&self) -> u32;
    fn swap(&self, from: u32, to: u32) -> bool;
    /// What it said before.
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
        /// Loom finds out who else writes there.
        fn write(&self) {
            self.memory.with_mut(|_| ());
        }
    }

    /// One that copies there, beside `other`.
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
    fn nobody_has_a_unit_where_another_writes() {
        beside(|unit| {
            if assign(&unit.word, 6) {
                unit.write();
            }
        });
    }

    #[test]
    fn nobody_writes_where_memory_was_taken_back() {
        beside(|unit| {
            if invalidate(&unit.word) {
                unit.write();
            }
        });
    }

    #[test]
    fn what_was_taken_back_in_the_middle_can_be_lent_when_the_other_has_left() {
        beside(|unit| {
            invalidate(&unit.word);
            if assign(&unit.word, 8) {
                unit.write();
            }
        });
    }
}
