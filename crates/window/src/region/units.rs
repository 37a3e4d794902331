//! The numbers of a heap's units.
//!
//! A number says who has the unit now: whoever borrows it, or takes back what others were told of it, counts it up
//! by two. Who copies *from* there looks at it again afterwards. Who copies *to* there, into memory that somebody
//! waits for, enters before and leaves after: the number is odd meanwhile. Entering fails when the number has
//! changed, and the unit is lent to nobody before the other one has left, however its borrower ended. So nobody
//! writes into memory that has come to be another's.
//!
//! Who ends in a unit stays there: that one is lost until the region is made anew.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use crate::raw::Words;

/// In a number: somebody who does not have the unit writes there.
const ENTERED: u32 = 1;

/// From one number to the next.
const STEP: u32 = 2;

/// The numbers of the units of a heap.
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

    /// Give units, which nobody has, one number that none of them had; `None` when somebody has not left yet.
    pub(super) fn renew(&self, units: Range<u32>) -> Option<u32> {
        let numbers = self
            .words(units.clone())
            .map(|word| word.load(Ordering::Acquire));
        let number = (numbers.max()? & !ENTERED).wrapping_add(STEP);
        let all = self.words(units).all(|word| renew(word, number));
        // Who sees what is written from here on sees the number.
        fence(Ordering::Release);
        all.then_some(number)
    }

    /// Count the number of units up, so that nobody enters any more; false when somebody has not left yet.
    pub(super) fn retire(&self, units: Range<u32>) -> bool {
        let left = self
            .words(units)
            .fold(true, |left, word| retire(word) & left);
        // As above.
        fence(Ordering::Release);
        left
    }

    /// Whether units have this number.
    pub(super) fn have(&self, mut units: Range<u32>, number: u32) -> bool {
        // What was read before lay there when it had.
        fence(Ordering::Acquire);
        units.all(|unit| {
            let word = self.words.get(unit);
            word.is_some_and(|word| word.load(Ordering::Acquire) == number)
        })
    }

    /// Enter units, if all have this number.
    pub(super) fn enter(&self, units: Range<u32>, number: u32) -> bool {
        for unit in units.clone() {
            if !self.words.get(unit).is_some_and(|word| enter(word, number)) {
                self.leave(units.start..unit);
                return false;
            }
        }
        true
    }

    /// Leave units that were entered.
    pub(super) fn leave(&self, units: Range<u32>) {
        self.words(units).for_each(leave);
    }
}

/// The word of a unit. A model has another one.
trait Number {
    fn load(&self) -> u32;
    fn swap(&self, from: u32, to: u32) -> bool;
    /// What it said before.
    fn add(&self, step: u32) -> u32;
    fn clear(&self, bits: u32);
}

macro_rules! number {
    ($atomic:ty) => {
        impl Number for $atomic {
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

number!(AtomicU32);

fn renew(word: &impl Number, number: u32) -> bool {
    let old = word.load();
    old & ENTERED == 0 && word.swap(old, number)
}

fn retire(word: &impl Number) -> bool {
    word.add(STEP) & ENTERED == 0
}

fn enter(word: &impl Number, number: u32) -> bool {
    number & ENTERED == 0 && word.swap(number, number | ENTERED)
}

fn leave(word: &impl Number) {
    word.clear(ENTERED);
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    use super::{Number, Ordering, enter, leave, renew, retire};

    number!(AtomicU32);

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
                        if enter(&unit.word, 4) {
                            unit.write();
                            leave(&unit.word);
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
            if renew(&unit.word, 6) {
                unit.write();
            }
        });
    }

    #[test]
    fn nobody_writes_where_memory_was_taken_back() {
        beside(|unit| {
            if retire(&unit.word) {
                unit.write();
            }
        });
    }

    #[test]
    fn what_was_taken_back_in_the_middle_can_be_lent_when_the_other_has_left() {
        beside(|unit| {
            retire(&unit.word);
            if renew(&unit.word, 8) {
                unit.write();
            }
        });
    }
}
