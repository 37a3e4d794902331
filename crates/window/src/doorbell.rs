//! Wake-ups without lost wake-ups: the handshake between a sleeper and its ringer.
//!
//! The protocol is that of Linux wait queues. The sleeper increments its word to an odd number
//! (prepare to wait), then checks for work once more. The ringer publishes work, then reads the
//! sleeper's word. Each side writes before it reads, and a processor keeps that order only with a
//! full fence in between. With a fence on both sides, at least one of the two sees what the other
//! wrote. The models at the end of this file check every interleaving and every reordering that the
//! memory model allows. When it is awake again, the sleeper increments its word to an even number
//! (finish wait). So a ringer can distinguish one sleep from the next, and rings once for each.
//!
//! Most sleepers wait for records only. Such a sleeper says so in its word ([`WITHOUT_ROOM`]), so that a side which
//! releases space does not wake it. A ringer that does not know this flag wakes it nevertheless, which costs time only.
//!
//! A full fence waits until the cache line that was just written has come from the other side's
//! cache. One fence for each message would be most of the cost of a small message, while sleeping
//! is rare. So where the kernel has `membarrier(2)`, only the sleeper fences: itself, and by that
//! call every processor that runs a process which [`register_membarrier`] registered. The ringer then needs
//! no fence of its own, if its process is registered and if the other side announced
//! ([`Ringer::set_peer_fences`]) that it sleeps like this. Two sides on different kernels use a
//! fence each.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence};

use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

use crate::raw::Word;

/// Orders the stores before it with the loads after it.
#[inline(always)]
fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Returns whether [`wait_fence`] also fences the other processes of this host, and their calls
/// fence this process. The first call registers the process with the kernel.
#[must_use]
pub fn register_membarrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        membarrier_query().contains_command(MembarrierCommand::GlobalExpedited)
            && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
    })
}

/// Flag of a sleep word: the sleeper has nothing to send that waits for room in a lane.
const WITHOUT_ROOM: u32 = 1 << 31;

/// This side's sleep word: the peer reads it.
#[derive(Debug)]
pub struct Sleeper {
    word: Word,
    count: u32,
}

impl Sleeper {
    pub(crate) fn new(word: Word) -> Self {
        Self { word, count: 0 }
    }

    /// Announces that this side is about to sleep, and whether it has something to send that waits for room. The thread
    /// then calls [`wait_fence`] once for all its sleepers, and checks for work a last time.
    #[inline]
    pub fn prepare_to_wait(&mut self, needs_room: bool) {
        self.count = (self.count.wrapping_add(1) | 1) & !WITHOUT_ROOM;
        let flag = if needs_room { 0 } else { WITHOUT_ROOM };
        self.word.store(self.count | flag);
    }

    /// Announces that this side is awake.
    #[inline]
    pub fn finish_wait(&mut self) {
        if self.count & 1 != 0 {
            self.count = self.count.wrapping_add(1) & !WITHOUT_ROOM;
            self.word.store(self.count);
        }
    }
}

/// Orders [`Sleeper::prepare_to_wait`] before the last check for work. Returns false if the kernel
/// refused the fence that was announced to peers: then a peer may miss this sleep, and the thread
/// must not sleep for long.
#[must_use]
pub fn wait_fence() -> bool {
    full_fence();
    // The call fails only if a filter of system calls was installed after the registration.
    // syscalls: membarrier
    !register_membarrier() || membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// The peer's sleep word, as this side reads it.
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

    /// Records whether the other side announced that its [`wait_fence`] fences all processes, this
    /// one included. A peer that lies about it misses its own wake-ups; nothing else happens.
    pub fn set_peer_fences(&mut self, by_peer: bool) {
        self.fenced = by_peer && register_membarrier();
    }

    /// Returns whether the other side must be woken, after a record was published for it. Returns
    /// true once for each of its sleeps.
    #[inline(always)]
    #[must_use]
    pub fn needs_wakeup(&mut self) -> bool {
        self.rings(0)
    }

    /// Returns whether the other side must be woken, after space of its lanes was released and no record was published.
    /// Returns true once for each of its sleeps in which it waits for room.
    #[inline(always)]
    #[must_use]
    pub fn needs_wakeup_for_room(&mut self) -> bool {
        self.rings(WITHOUT_ROOM)
    }

    /// Returns whether the other side sleeps, has not been woken from this sleep, and has announced none of these flags.
    #[inline(always)]
    fn rings(&mut self, flags: u32) -> bool {
        match self.fenced {
            true => compiler_fence(Ordering::SeqCst),
            false => full_fence(),
        }
        let word = self.word.load();
        if word & 1 == 0 || word == self.rung || word & flags != 0 {
            return false;
        }
        self.rung = word;
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
        /// The kernel's part of `membarrier` on another processor, if the interrupt arrives here.
        fn interrupted(&self, here: bool) {
            if here {
                while self.asked.load(Ordering::Acquire) == 0 {
                    thread::yield_now();
                }
                full_fence();
                self.fenced.store(1, Ordering::Release);
            }
        }

        /// The caller's part: fences itself, then waits for all others.
        fn membarrier(&self) {
            full_fence();
            self.asked.store(1, Ordering::Release);
            while self.fenced.load(Ordering::Acquire) == 0 {
                thread::yield_now();
            }
            full_fence();
        }
    }

    /// The producer publishes a record and reads whether the consumer sleeps; the consumer
    /// announces its sleep and checks for a record. If no doorbell rings, the consumer must have
    /// seen the record: otherwise it would sleep without a limit.
    #[test]
    fn no_wakeup_is_lost_for_a_record() {
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
    fn no_wakeup_is_lost_for_free_slots() {
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

    /// A sleeper that waits for no room announces so. It is not woken for free slots, and for a record it is.
    #[test]
    fn no_wakeup_for_a_record_is_lost_by_a_sleeper_without_need_of_room() {
        use super::WITHOUT_ROOM;
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.released.store(1, Ordering::Release);
                    full_fence();
                    let for_room = shared.asleep.load(Ordering::Acquire);
                    shared.slot.store(1, Ordering::Release);
                    full_fence();
                    let for_record = shared.asleep.load(Ordering::Acquire);
                    assert!(for_room & 1 == 0 || for_room & WITHOUT_ROOM != 0);
                    for_record & 1 == 1
                })
            };
            shared.asleep.store(1 | WITHOUT_ROOM, Ordering::Release);
            full_fence();
            let seen = shared.slot.load(Ordering::Acquire) == 1;
            assert!(other.join().unwrap() || seen);
        });
    }

    /// As [`no_wakeup_is_lost_for_a_record`], with the sleeper's `membarrier` in place of the
    /// producer's fence. The kernel runs a fence on the producer's processor while the sleeper is
    /// in the call, so at some point of the producer's program: before it publishes, before it
    /// reads the sleep word, or after both (also if the producer does not run at all).
    #[test]
    fn no_wakeup_is_lost_when_the_sleeper_fences_for_both() {
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
    fn a_slot_is_read_whole_and_not_overwritten_unread() {
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
