//! How a side sleeps without being forgotten.
//!
//! The sleeper counts its word up to an odd number, then looks whether there is work; whoever has
//! work for it publishes it, then looks at the word. Each must tell before it looks, which a
//! processor does not promise without a full fence in between: with one on both sides, at least
//! one of the two sees what the other told. The model at the end checks every interleaving and
//! every reordering that the memory model allows. Awake again, the sleeper counts up to an even
//! number, so that a ringer can tell one sleep from the next and rings once for each.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

use std::sync::atomic::Ordering;

use crate::raw::Word;

/// Whatever was told before is visible to the other side, or what it told is visible after.
#[inline(always)]
fn tell_then_look() {
    fence(Ordering::SeqCst);
}

/// Says whether this side sleeps.
#[derive(Debug)]
pub struct Sleeper {
    word: Word,
    count: u32,
}

impl Sleeper {
    pub(crate) fn new(word: Word) -> Self {
        Self { word, count: 0 }
    }

    /// Tell that this side is about to sleep. Call [`settle`] once for all sleepers of a thread
    /// before looking for work a last time.
    #[inline]
    pub fn doze(&mut self) {
        self.count = self.count.wrapping_add(1) | 1;
        self.word.store(self.count);
    }

    /// Tell that this side is awake.
    #[inline]
    pub fn rise(&mut self) {
        if self.count & 1 != 0 {
            self.count = self.count.wrapping_add(1);
            self.word.store(self.count);
        }
    }
}

/// Comes between [`Sleeper::doze`] and the last look.
#[inline]
pub fn settle() {
    tell_then_look();
}

/// Looks whether the other side sleeps.
#[derive(Debug)]
pub struct Ringer {
    word: Word,
    rung: u32,
}

impl Ringer {
    pub(crate) fn new(word: Word) -> Self {
        Self { word, rung: 0 }
    }

    /// Whether the other side must be woken, after something was published for it. True once for
    /// each of its sleeps.
    #[inline(always)]
    #[must_use]
    pub fn must_ring(&mut self) -> bool {
        tell_then_look();
        let count = self.word.load();
        if count & 1 == 0 || count == self.rung {
            return false;
        }
        self.rung = count;
        true
    }
}

#[cfg(all(loom, test))]
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::tell_then_look;

    #[derive(Default)]
    struct Shared {
        slot: AtomicU32,
        body: AtomicU32,
        released: AtomicU32,
        asleep: AtomicU32,
    }

    /// The producer publishes a record and looks whether the consumer sleeps; the consumer says
    /// that it will sleep and looks for a record. If no bell rings, the record must have been
    /// seen: else the consumer would sleep for ever.
    #[test]
    fn nobody_sleeps_beside_a_record() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.slot.store(1, Ordering::Release);
                    tell_then_look();
                    shared.asleep.load(Ordering::Acquire) & 1 == 1
                })
            };
            shared.asleep.store(1, Ordering::Release);
            tell_then_look();
            let seen = shared.slot.load(Ordering::Acquire) == 1;
            assert!(producer.join().unwrap() || seen);
        });
    }

    /// The same for a producer that sleeps because the ring is full, and a consumer that releases
    /// slots.
    #[test]
    fn nobody_sleeps_beside_room() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let consumer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.released.store(1, Ordering::Release);
                    tell_then_look();
                    shared.asleep.load(Ordering::Acquire) & 1 == 1
                })
            };
            shared.asleep.store(1, Ordering::Release);
            tell_then_look();
            let room = shared.released.load(Ordering::Acquire) == 1;
            assert!(consumer.join().unwrap() || room);
        });
    }

    /// One slot, used twice. The body read with a header is the one written with it, and the slot
    /// is not written again before it was read.
    #[test]
    fn a_slot_is_whole_and_is_not_overtaken() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.body.store(11, Ordering::Relaxed);
                    shared.slot.store(1, Ordering::Release);
                    if shared.released.load(Ordering::Acquire) == 1 {
                        shared.body.store(12, Ordering::Relaxed);
                        shared.slot.store(2, Ordering::Release);
                    }
                })
            };
            if shared.slot.load(Ordering::Acquire) == 1 {
                assert_eq!(shared.body.load(Ordering::Relaxed), 11);
                shared.released.store(1, Ordering::Release);
            }
            producer.join().unwrap();
        });
    }
}
