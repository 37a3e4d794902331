//! How a side sleeps without being forgotten.
//!
//! The sleeper counts its word up to an odd number, then looks whether there is work; whoever has
//! work for it publishes it, then looks at the word. Each must tell before it looks, which a
//! processor does not promise without a full fence in between: with one on both sides, at least
//! one of the two sees what the other told. The models at the end check every interleaving and
//! every reordering that the memory model allows. Awake again, the sleeper counts up to an even
//! number, so that a ringer can tell one sleep from the next and rings once for each.
//!
//! A fence waits until the line that was just written has come from the other side's cache, so
//! one for each message would be most of what a small message costs. Sleeping is rare. So where
//! the kernel has `membarrier(2)`, the sleeper alone fences: itself, and at the same time every
//! processor that runs a process which [`fences_all`] registered. The ringer then needs no fence
//! of its own, if it is such a process, and if the other side says ([`Ringer::set_peer_fences`]) that it
//! sleeps like this. Sides on different kernels have a fence each.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use crate::raw::Word;

/// Whatever was told before is visible to the other side, or what it told is visible after.
#[inline(always)]
fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Whether [`wait_fence`] fences the other processes of this host too, and this process is fenced by
/// theirs. Registers it when first asked.
#[must_use]
pub fn fences_all() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
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

    /// Tell that this side is about to sleep. Call [`wait_fence`] once for all sleepers of a thread
    /// before looking for work a last time.
    #[inline]
    pub fn prepare_to_wait(&mut self) {
        self.count = self.count.wrapping_add(1) | 1;
        self.word.store(self.count);
    }

    /// Tell that this side is awake.
    #[inline]
    pub fn finish_wait(&mut self) {
        if self.count & 1 != 0 {
            self.count = self.count.wrapping_add(1);
            self.word.store(self.count);
        }
    }
}

/// Comes between [`Sleeper::prepare_to_wait`] and the last look. False when it could not be done as peers
/// were told: then they may forget this side, and it must not sleep for long.
#[must_use]
pub fn wait_fence() -> bool {
    full_fence();
    // It fails only when a filter of system calls came later than the registration.
    // syscalls: membarrier
    !fences_all() || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Looks whether the other side sleeps.
#[derive(Debug)]
pub struct Ringer {
    word: Word,
    rung: u32,
    fenced: bool,
}

impl Ringer {
    pub(crate) fn new(word: Word) -> Self {
        Self {
            word,
            rung: 0,
            fenced: false,
        }
    }

    /// Whether the other side says that its [`wait_fence`] fences all processes, this one included.
    /// One that lies is not woken, and that is all.
    pub fn set_peer_fences(&mut self, by_peer: bool) {
        self.fenced = by_peer && fences_all();
    }

    /// Whether the other side must be woken, after something was published for it. True once for
    /// each of its sleeps.
    #[inline(always)]
    #[must_use]
    pub fn needs_wakeup(&mut self) -> bool {
        match self.fenced {
            true => compiler_fence(Ordering::SeqCst),
            false => full_fence(),
        }
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

    use super::full_fence;

    #[derive(Default)]
    struct Shared {
        slot: AtomicU32,
        body: AtomicU32,
        released: AtomicU32,
        asleep: AtomicU32,
        asked: AtomicU32,
        fenced: AtomicU32,
    }

    impl Shared {
        /// The kernel's side of `membarrier` on another processor, if it comes here.
        fn interrupted(&self, here: bool) {
            if here {
                while self.asked.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                full_fence();
                self.fenced.store(1, Ordering::Release);
            }
        }

        /// The caller's side: fences itself, then waits for all others.
        fn membarrier(&self) {
            full_fence();
            self.asked.store(1, Ordering::Release);
            while self.fenced.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            full_fence();
        }
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
                    full_fence();
                    shared.asleep.load(Ordering::Acquire) & 1 == 1
                })
            };
            shared.asleep.store(1, Ordering::Release);
            full_fence();
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
                    full_fence();
                    shared.asleep.load(Ordering::Acquire) & 1 == 1
                })
            };
            shared.asleep.store(1, Ordering::Release);
            full_fence();
            let room = shared.released.load(Ordering::Acquire) == 1;
            assert!(consumer.join().unwrap() || room);
        });
    }

    /// As [`nobody_sleeps_beside_a_record`], with the sleeper's `membarrier` in place of the
    /// producer's fence. The kernel runs a fence on the producer's processor while the sleeper is
    /// in the call, so somewhere in the producer's program: before it publishes, before it looks,
    /// or after both (also when it does not run at all).
    #[test]
    fn nobody_sleeps_beside_a_record_when_the_sleeper_fences_for_both() {
        for place in 0..3 {
            loom::model(move || {
                let shared = Arc::new(Shared::default());
                let producer = {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        shared.interrupted(place == 0);
                        shared.slot.store(1, Ordering::Release);
                        shared.interrupted(place == 1);
                        let rings = shared.asleep.load(Ordering::Acquire) & 1 == 1;
                        shared.interrupted(place == 2);
                        rings
                    })
                };
                shared.asleep.store(1, Ordering::Release);
                shared.membarrier();
                let seen = shared.slot.load(Ordering::Acquire) == 1;
                assert!(producer.join().unwrap() || seen);
            });
        }
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
