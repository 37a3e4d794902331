//! Chunk claims: both sides of a window copy one large message, each chunk once.
//!
//! A 64-bit word of the window holds an *epoch* in its high half. Its low half has the number of chunks that the consumer of
//! the direction has claimed and the number of those that its producer has, 16 bits each. The consumer begins an epoch by
//! storing it with no claims. Then the consumer claims from the first chunk on and the producer from the last one back, by
//! compare and swap, until they meet. So each chunk is claimed once, and a side that is late, or still works on an older
//! epoch, claims nothing. A program that uses the same memory for many messages finds its part of it in the caches of its
//! own processor.
//!
//! The producer can *withdraw* its messages: it stores a word that stands for no epoch, before the program uses their memory
//! again. A consumer that has copied a message and does not find this word then has copied the message as it was.
//!
//! The other side can write anything into the word at any time. Whatever it writes, the claims of
//! this side only grow and stay below the number of chunks, so the loops end.

#[cfg(loom)]
use loom::sync::atomic::fence;
use std::sync::Arc;
#[cfg(not(loom))]
use std::sync::atomic::fence;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ProtocolError;
use crate::raw::{LongWord, Mapping};

/// The claims word of one direction of a window.
#[derive(Debug)]
pub struct Claims {
    word: LongWord,
    /// The last epoch that this side began.
    epoch: u32,
}

impl Claims {
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64) -> Option<Self> {
        Some(Self {
            word: LongWord::new(mapping, offset)?,
            epoch: 0,
        })
    }

    /// Consumer only: begins an epoch. All chunks of the last one must be claimed, or it must have [ended](Self::end). If the
    /// producer has withdrawn, nothing can be claimed.
    pub fn begin(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        replace(self.word.atomic(), pack(self.epoch, NONE));
        self.epoch
    }

    /// Consumer only: ends the epoch, so that no side claims a chunk of it any more. Returns how many the producer has claimed,
    /// as far as it can be believed.
    pub fn end(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        let before = replace(self.word.atomic(), pack(self.epoch, ALL));
        unpack(before).1.producer.into()
    }

    /// Consumer only: returns whether the producer has claimed chunks of the epoch, as far as it can be believed.
    #[must_use]
    pub fn producer_has_claimed(&self) -> bool {
        unpack(self.word.atomic().load(Ordering::Acquire))
            .1
            .producer
            > 0
    }

    /// Producer only: the memory of its messages is used for other things afterwards.
    pub fn withdraw(&self) {
        withdraw(self.word.atomic());
    }

    /// Consumer only, after a copy: returns whether the producer has withdrawn, so that the copy may be wrong.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        is_withdrawn(self.word.atomic())
    }

    /// Consumer only: returns a claimer for an epoch of so many chunks.
    #[must_use]
    pub fn consumer(&self, epoch: u32, chunks: u16) -> ChunkClaimer<'_> {
        ChunkClaimer::new(self.word.atomic(), epoch, chunks, End::First)
    }

    /// Producer only: the same.
    #[must_use]
    pub fn producer(&self, epoch: u32, chunks: u16) -> ChunkClaimer<'_> {
        ChunkClaimer::new(self.word.atomic(), epoch, chunks, End::Last)
    }
}

/// Claims the chunks of one epoch, in order.
#[derive(Debug)]
pub struct ChunkClaimer<'a> {
    word: &'a AtomicU64,
    epoch: u32,
    chunks: u16,
    end: End,
    /// The claims that this side knows of: all its own ones, and some of the other side's.
    known: Claimed,
}

impl<'a> ChunkClaimer<'a> {
    fn new(word: &'a AtomicU64, epoch: u32, chunks: u16, end: End) -> Self {
        Self {
            word,
            epoch,
            chunks,
            end,
            known: NONE,
        }
    }

    /// Claims the next chunk for this side; `None` if no chunk is left or the epoch is over.
    ///
    /// # Errors
    /// The other side changed this side's claims, or took its own back.
    pub fn claim(&mut self) -> Result<Option<u32>, ProtocolError> {
        let epoch = (self.epoch, self.chunks);
        let Some(claimed) = claim(self.word, epoch, self.end, self.known)? else {
            return Ok(None);
        };
        self.known = claimed;
        let chunk = match self.end {
            End::First => claimed.consumer.checked_sub(1),
            End::Last => self.chunks.checked_sub(claimed.producer),
        };
        Ok(chunk.map(u32::from))
    }
}

/// The end of the message from which a side claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The consumer's.
    First,
    /// The producer's.
    Last,
}

/// How many chunks each side has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claimed {
    consumer: u16,
    producer: u16,
}

const NONE: Claimed = Claimed {
    consumer: 0,
    producer: 0,
};

/// More than any message has: nothing is left to claim.
const ALL: Claimed = Claimed {
    consumer: u16::MAX,
    producer: 0,
};

impl Claimed {
    fn sum(self) -> u32 {
        u32::from(self.consumer) + u32::from(self.producer)
    }

    /// Returns these claims and another one of this end.
    fn and(mut self, end: End) -> Self {
        let count = match end {
            End::First => &mut self.consumer,
            End::Last => &mut self.producer,
        };
        *count = count.saturating_add(1);
        self
    }

    /// Returns whether the side of this end can see these claims after the others: only the other side has claimed meanwhile.
    fn may_follow(self, known: Self, end: End) -> bool {
        match end {
            End::First => self.consumer == known.consumer && self.producer >= known.producer,
            End::Last => self.producer == known.producer && self.consumer >= known.consumer,
        }
    }
}

/// The word of a producer that has withdrawn. It is none of an epoch, because no message has so many chunks.
const WITHDRAWN: u64 = u64::MAX;

/// The operations on a claims word. The loom model implements them, too.
trait ClaimWord {
    fn load(&self) -> u64;
    /// Replaces `from` by `to`; returns the value that is there if it differs from `from`.
    fn compare_and_swap(&self, from: u64, to: u64) -> Result<u64, u64>;
    fn exchange(&self, to: u64) -> u64;
    fn store(&self, to: u64);
}

macro_rules! claim_word {
    ($atomic:ty) => {
        impl ClaimWord for $atomic {
            fn load(&self) -> u64 {
                self.load(Ordering::Acquire)
            }

            fn compare_and_swap(&self, from: u64, to: u64) -> Result<u64, u64> {
                self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            }

            fn exchange(&self, to: u64) -> u64 {
                self.swap(to, Ordering::AcqRel)
            }

            fn store(&self, to: u64) {
                self.store(to, Ordering::Release);
            }
        }
    };
}

claim_word!(AtomicU64);

/// Claims a chunk; returns all claims then. Each round of the loop sees more claims than the one before, so it has at most as
/// many rounds as there are chunks.
fn claim(
    word: &impl ClaimWord,
    (epoch, chunks): (u32, u16),
    end: End,
    mut known: Claimed,
) -> Result<Option<Claimed>, ProtocolError> {
    let other = match end {
        End::First => End::Last,
        End::Last => End::First,
    };
    let mut seen = word.load();
    loop {
        let (now, claimed) = unpack(seen);
        if now != epoch || claimed.sum() >= chunks.into() {
            return Ok(None);
        }
        if !claimed.may_follow(known, end) {
            return Err(ProtocolError::Claimed);
        }
        let next = claimed.and(end);
        match word.compare_and_swap(seen, pack(epoch, next)) {
            Ok(_) => return Ok(Some(next)),
            Err(changed) => seen = changed,
        }
        known = claimed.and(other);
    }
}

/// Replaces the word unless its producer has withdrawn, and then looks at it no more; returns the word before.
fn replace(word: &impl ClaimWord, to: u64) -> u64 {
    let before = word.exchange(to);
    if before == WITHDRAWN {
        word.store(WITHDRAWN);
    }
    before
}

fn withdraw(word: &impl ClaimWord) {
    word.exchange(WITHDRAWN);
    // The program's later writes are visible to those only that see the word.
    fence(Ordering::SeqCst);
}

fn is_withdrawn(word: &impl ClaimWord) -> bool {
    // The copy's reads come before that of the word.
    fence(Ordering::SeqCst);
    word.load() == WITHDRAWN
}

fn pack(epoch: u32, claimed: Claimed) -> u64 {
    let claims = u64::from(claimed.producer) << 16 | u64::from(claimed.consumer);
    u64::from(epoch) << 32 | claims
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "picking the parts of a word"
)]
fn unpack(word: u64) -> (u32, Claimed) {
    let claimed = Claimed {
        consumer: word as u16,
        producer: (word >> 16) as u16,
    };
    ((word >> 32) as u32, claimed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    const EPOCH: u32 = 7;

    /// Returns the word of an epoch with these claims of the consumer and the producer.
    fn word(epoch: u32, consumer: u16, producer: u16) -> u64 {
        pack(epoch, Claimed { consumer, producer })
    }

    /// Claims all chunks that are left of an epoch.
    fn all(word: &AtomicU64, epoch: u32, chunks: u16, end: End) -> Vec<u32> {
        let mut claimer = ChunkClaimer::new(word, epoch, chunks, end);
        std::iter::from_fn(|| claimer.claim().unwrap()).collect()
    }

    #[test]
    fn two_claimers_claim_each_chunk_once_from_their_ends() {
        const CHUNKS: u16 = 10_000;
        let shared = AtomicU64::new(0);
        for epoch in 1..20 {
            shared.store(pack(epoch, NONE), Ordering::Release);
            let [first, last] = std::thread::scope(|scope| {
                let both = [End::First, End::Last].map(|end| {
                    scope.spawn({
                        let shared = &shared;
                        move || all(shared, epoch, CHUNKS, end)
                    })
                });
                both.map(|one| one.join().unwrap())
            });
            assert!(first.is_sorted() && last.is_sorted_by(|one, next| one > next));
            let mut claimed = [first, last].concat();
            claimed.sort_unstable();
            assert_eq!(claimed, (0..u32::from(CHUNKS)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_claimed_of_an_epoch_that_is_over() {
        let shared = AtomicU64::new(word(EPOCH, 0, 3));
        for end in [End::First, End::Last] {
            assert_eq!(all(&shared, EPOCH - 1, 10, end), []);
            assert_eq!(all(&shared, EPOCH + 1, 10, end), []);
        }
        assert_eq!(shared.load(Ordering::Relaxed), word(EPOCH, 0, 3));
        assert_eq!(all(&shared, EPOCH, 5, End::First), [0, 1]);
        assert_eq!(all(&shared, EPOCH, 5, End::First), []);
    }

    #[test]
    fn claims_that_are_changed_are_detected() {
        for (end, first, second) in [(End::First, 0, 1), (End::Last, 9, 8)] {
            for changed in [
                word(EPOCH, 0, 0),
                word(EPOCH, 2, 0),
                word(EPOCH, 0, 2),
                word(EPOCH, 3, 1),
                word(EPOCH, 1, 3),
            ] {
                let shared = AtomicU64::new(word(EPOCH, 0, 0));
                let mut claims = ChunkClaimer::new(&shared, EPOCH, 10, end);
                assert_eq!(claims.claim(), Ok(Some(first)));
                let (_, now) = unpack(changed);
                shared.store(changed, Ordering::Relaxed);
                let follows = match end {
                    End::First => now.consumer == 1,
                    End::Last => now.producer == 1,
                };
                match follows {
                    true => assert_eq!(claims.claim(), Ok(Some(second))),
                    false => assert_eq!(claims.claim(), Err(ProtocolError::Claimed)),
                }
            }
        }
        // The other side takes claims back while this side retries.
        let words = [word(1, 0, 2), word(1, 0, 1)].map(Other::Writes).to_vec();
        let claimed = claim(&Hostile::new(words), (1, 10), End::First, NONE);
        assert_eq!(claimed, Err(ProtocolError::Claimed));
    }

    #[test]
    fn a_withdrawal_is_seen_after_the_copy_and_before_the_next() {
        let shared = AtomicU64::new(0);
        replace(&shared, pack(1, NONE));
        assert_eq!(all(&shared, 1, 2, End::First), [0, 1]);
        assert!(!is_withdrawn(&shared));
        withdraw(&shared);
        assert!(is_withdrawn(&shared));
        // An epoch that begins now does not hide it.
        assert_eq!(replace(&shared, pack(2, NONE)), WITHDRAWN);
        assert!(is_withdrawn(&shared));
        for end in [End::First, End::Last] {
            assert_eq!(all(&shared, 2, 10, end), []);
            assert_eq!(all(&shared, u32::MAX, u16::MAX, end), []);
        }
    }

    #[test]
    fn an_epoch_that_has_ended_tells_the_claims_of_its_producer() {
        let shared = AtomicU64::new(word(1, 0, 0));
        let mut producer = ChunkClaimer::new(&shared, 1, 10, End::Last);
        let mut consumer = ChunkClaimer::new(&shared, 1, 10, End::First);
        assert_eq!(producer.claim(), Ok(Some(9)));
        assert_eq!(producer.claim(), Ok(Some(8)));
        assert_eq!(consumer.claim(), Ok(Some(0)));
        assert_eq!(unpack(replace(&shared, pack(2, ALL))).1.producer, 2);
        assert_eq!(producer.claim(), Ok(None));
        assert_eq!(all(&shared, 2, u16::MAX, End::Last), []);
    }

    /// What the other side does to the word before this side reads it.
    #[derive(Clone, Copy, Debug)]
    enum Other {
        Nothing,
        /// The producer claims chunks, as the protocol demands.
        Claims(u16),
        Writes(u64),
    }

    /// A word on which the other side repeats these steps.
    struct Hostile {
        others: Vec<Other>,
        looks: Cell<usize>,
        word: Cell<u64>,
    }

    impl Hostile {
        fn new(others: Vec<Other>) -> Self {
            Self {
                others,
                looks: Cell::default(),
                word: Cell::new(word(1, 0, 0)),
            }
        }
    }

    impl ClaimWord for Hostile {
        fn load(&self) -> u64 {
            let looks = self.looks.get();
            assert!(looks < 1000, "the loop does not end");
            self.looks.set(looks + 1);
            match self.others[looks % self.others.len()] {
                Other::Nothing => {}
                Other::Claims(count) => self.word.set(self.word.get() + (u64::from(count) << 16)),
                Other::Writes(word) => self.word.set(word),
            }
            self.word.get()
        }

        fn compare_and_swap(&self, from: u64, to: u64) -> Result<u64, u64> {
            match self.load() {
                now if now == from => {
                    self.word.set(to);
                    Ok(from)
                }
                now => Err(now),
            }
        }

        fn exchange(&self, to: u64) -> u64 {
            self.word.replace(to)
        }

        fn store(&self, to: u64) {
            self.word.set(to);
        }
    }

    #[test]
    fn whatever_the_other_side_writes_claims_grow_and_end() {
        let any_word = (0u32..3, prop_oneof![0u16..40, any::<u16>()], 0u16..40);
        let other = prop_oneof![
            6 => Just(Other::Nothing),
            3 => (1u16..3).prop_map(Other::Claims),
            1 => any_word.prop_map(|(epoch, consumer, producer)| Other::Writes(word(epoch, consumer, producer))),
        ];
        let others = prop::collection::vec(other, 1..100);
        let claimed = Cell::new(0);
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(others, 0u16..40), |(others, chunks)| {
            let hostile = Hostile::new(others);
            let mut known = NONE;
            while let Ok(Some(now)) = claim(&hostile, (1, chunks), End::First, known) {
                prop_assert_eq!(now.consumer, known.consumer + 1);
                prop_assert!(now.sum() <= u32::from(chunks));
                known = now;
                claimed.set(claimed.get() + 1);
            }
            Ok(())
        });
        checked.unwrap();
        println!("{} were claimed", claimed.get());
        assert!(claimed.get() > 100, "{} were claimed", claimed.get());
    }
}

#[cfg(all(test, loom))]
mod model {
    use std::sync::Arc;

    use loom::cell::UnsafeCell;
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    use loom::thread;

    use super::{ClaimWord, End, NONE, Ordering, claim, is_withdrawn, pack, replace, withdraw};

    claim_word!(AtomicU64);

    const CHUNKS: u16 = 2;

    struct Shared {
        word: AtomicU64,
        /// The epoch that the other side was notified of.
        notified: AtomicU32,
        /// How many chunks the other side reports to have copied.
        copied: AtomicU32,
        /// The memory of each chunk, and how often it was written.
        chunks: [(UnsafeCell<()>, AtomicU32); CHUNKS as usize],
    }

    impl Shared {
        /// Claims and writes all chunks that are left of an epoch; returns how many.
        fn copy(&self, epoch: u32, end: End) -> u32 {
            let (mut known, mut count) = (NONE, 0);
            while let Some(claimed) = claim(&self.word, (epoch, CHUNKS), end, known).unwrap() {
                let chunk = match end {
                    End::First => claimed.consumer - 1,
                    End::Last => CHUNKS - claimed.producer,
                };
                let (memory, written) = &self.chunks[usize::from(chunk)];
                // Loom reports a concurrent access.
                memory.with_mut(|_| written.fetch_add(1, Ordering::Relaxed));
                (known, count) = (claimed, count + 1);
            }
            count
        }
    }

    /// Once one side knows that the other is done, each chunk was written once, and the first side
    /// may reuse the chunks while the other is late.
    #[test]
    fn each_chunk_is_written_once_and_not_after_the_epoch() {
        loom::model(|| {
            let shared = Arc::new(Shared {
                word: AtomicU64::new(0),
                notified: AtomicU32::new(0),
                copied: AtomicU32::new(0),
                chunks: [(); 2].map(|()| (UnsafeCell::new(()), AtomicU32::new(0))),
            });
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.notified.load(Ordering::Acquire) == 1 {
                        let count = shared.copy(1, End::Last);
                        shared.copied.store(count, Ordering::Release);
                    }
                })
            };
            shared.word.store(pack(1, NONE), Ordering::Release);
            shared.notified.store(1, Ordering::Release);
            let own = shared.copy(1, End::First);
            while own + shared.copied.load(Ordering::Acquire) < u32::from(CHUNKS) {
                thread::yield_now();
            }
            for (memory, written) in &shared.chunks {
                memory.with_mut(|_| assert_eq!(written.load(Ordering::Relaxed), 1));
            }
            other.join().unwrap();
        });
    }

    /// A consumer that has copied a message and sees no withdrawal has not copied what the program wrote afterwards, whether it
    /// began before the withdrawal or after it.
    #[test]
    fn a_message_that_is_not_withdrawn_was_copied_as_it_was() {
        loom::model(|| {
            let word = Arc::new(AtomicU64::new(0));
            let message = Arc::new(AtomicU32::new(1));
            let producer = {
                let (word, message) = (Arc::clone(&word), Arc::clone(&message));
                thread::spawn(move || {
                    withdraw(&*word);
                    message.store(2, Ordering::Relaxed);
                })
            };
            replace(&*word, pack(1, NONE));
            let copy = message.load(Ordering::Relaxed);
            if !is_withdrawn(&*word) {
                assert_eq!(copy, 1);
            }
            producer.join().unwrap();
        });
    }
}
