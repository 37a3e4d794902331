//! Chunk claims: both sides of a window copy one large message, each chunk once.
//!
//! A 64-bit word of the window holds an *epoch* in its high half and the number of claimed chunks
//! in its low half. The consumer of the direction begins an epoch by storing it with no claims.
//! Then both sides claim the next chunk by compare and swap until none is left. So each chunk is
//! claimed once, and a side that is late, or still works on an older epoch, claims nothing.
//!
//! The other side can write anything into the word at any time. Whatever it writes, the claims of
//! this side only grow and stay below the number of chunks, so the loops end.

use std::sync::Arc;
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

    /// Consumer only: begins an epoch. All chunks of the last one must be claimed.
    pub fn begin(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        let none = pack(self.epoch, 0);
        self.word.atomic().store(none, Ordering::Release);
        self.epoch
    }

    /// Returns a claimer for an epoch of `chunks` chunks.
    #[must_use]
    pub fn claimer(&self, epoch: u32, chunks: u32) -> ChunkClaimer<'_> {
        ChunkClaimer {
            word: self.word.atomic(),
            epoch,
            chunks,
            least: 0,
        }
    }
}

/// Claims the chunks of one epoch, in order.
#[derive(Debug)]
pub struct ChunkClaimer<'a> {
    word: &'a AtomicU64,
    epoch: u32,
    chunks: u32,
    /// The lowest chunk that may still be unclaimed.
    least: u32,
}

impl ChunkClaimer<'_> {
    /// Claims the next chunk for this side; `None` if no chunk is left or the epoch is over.
    ///
    /// # Errors
    /// The other side took claims back.
    pub fn claim(&mut self) -> Result<Option<u32>, ProtocolError> {
        let claimed = claim(self.word, self.epoch, self.chunks, self.least)?;
        if let Some(chunk) = claimed {
            self.least = chunk + 1;
        }
        Ok(claimed)
    }
}

/// The operations on a claims word. The loom model implements them, too.
trait ClaimWord {
    fn load(&self) -> u64;
    /// Replaces `from` by `to`; returns the value that is there if it differs from `from`.
    fn swap(&self, from: u64, to: u64) -> Result<u64, u64>;
}

macro_rules! claim_word {
    ($atomic:ty) => {
        impl ClaimWord for $atomic {
            fn load(&self) -> u64 {
                self.load(Ordering::Acquire)
            }

            fn swap(&self, from: u64, to: u64) -> Result<u64, u64> {
                self.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
            }
        }
    };
}

claim_word!(AtomicU64);

/// Claims the next chunk, which is `least` or a later one. Each round of the loop sees more claims
/// than the one before, so it has at most as many rounds as there are chunks.
fn claim(
    word: &impl ClaimWord,
    epoch: u32,
    chunks: u32,
    mut least: u32,
) -> Result<Option<u32>, ProtocolError> {
    let mut seen = word.load();
    loop {
        let (now, next) = unpack(seen);
        if now != epoch || next >= chunks {
            return Ok(None);
        }
        if next < least {
            return Err(ProtocolError::Claimed { least, next });
        }
        match word.swap(seen, pack(epoch, next + 1)) {
            Ok(_) => return Ok(Some(next)),
            Err(other) => seen = other,
        }
        least = next + 1;
    }
}

fn pack(epoch: u32, next: u32) -> u64 {
    u64::from(epoch) << 32 | u64::from(next)
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "picking the halves of a word"
)]
fn unpack(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;

    /// Claims all chunks that are left of an epoch.
    fn all(word: &AtomicU64, epoch: u32, chunks: u32) -> Vec<u32> {
        let mut epoch = ChunkClaimer {
            word,
            epoch,
            chunks,
            least: 0,
        };
        std::iter::from_fn(|| epoch.claim().unwrap()).collect()
    }

    #[test]
    fn two_claimers_claim_each_chunk_once() {
        const CHUNKS: u32 = 10_000;
        let word = AtomicU64::new(0);
        for epoch in 1..20 {
            word.store(pack(epoch, 0), Ordering::Release);
            let mut claimed: Vec<u32> = std::thread::scope(|scope| {
                let both = [(); 2].map(|()| scope.spawn(|| all(&word, epoch, CHUNKS)));
                both.into_iter()
                    .flat_map(|one| one.join().unwrap())
                    .collect()
            });
            claimed.sort_unstable();
            assert_eq!(claimed, (0..CHUNKS).collect::<Vec<_>>());
        }
    }

    #[test]
    fn nothing_is_claimed_of_an_epoch_that_is_over() {
        let word = AtomicU64::new(pack(7, 3));
        assert_eq!(all(&word, 6, 10), []);
        assert_eq!(all(&word, 8, 10), []);
        assert_eq!(word.load(Ordering::Relaxed), pack(7, 3));
        assert_eq!(all(&word, 7, 5), [3, 4]);
        assert_eq!(all(&word, 7, 5), []);
    }

    #[test]
    fn claims_that_are_taken_back_are_detected() {
        let word = AtomicU64::new(pack(1, 0));
        let mut epoch = ChunkClaimer {
            word: &word,
            epoch: 1,
            chunks: 10,
            least: 0,
        };
        assert_eq!(epoch.claim(), Ok(Some(0)));
        word.store(pack(1, 0), Ordering::Relaxed);
        let broken = ProtocolError::Claimed { least: 1, next: 0 };
        assert_eq!(epoch.claim(), Err(broken));
        // The other side writes while this side retries.
        let words = [pack(1, 0), pack(1, 1)].map(Other::Writes).to_vec();
        let broken = ProtocolError::Claimed { least: 2, next: 0 };
        assert_eq!(claim(&Hostile::new(words), 1, 10, 0), Err(broken));
    }

    /// What the other side does to the word before this side reads it.
    #[derive(Clone, Copy, Debug)]
    enum Other {
        Nothing,
        /// The other side claims chunks, as the protocol demands.
        Claims(u32),
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
                word: Cell::new(pack(1, 0)),
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
                Other::Claims(count) => self.word.set(self.word.get() + u64::from(count)),
                Other::Writes(word) => self.word.set(word),
            }
            self.word.get()
        }

        fn swap(&self, from: u64, to: u64) -> Result<u64, u64> {
            match self.load() {
                now if now == from => {
                    self.word.set(to);
                    Ok(from)
                }
                now => Err(now),
            }
        }
    }

    #[test]
    fn whatever_the_other_side_writes_claims_grow_and_end() {
        let word = (0u32..3, prop_oneof![0u32..40, any::<u32>()]);
        let other = prop_oneof![
            6 => Just(Other::Nothing),
            3 => (1u32..3).prop_map(Other::Claims),
            1 => word.prop_map(|(epoch, next)| Other::Writes(pack(epoch, next))),
        ];
        let others = prop::collection::vec(other, 1..100);
        let claimed = Cell::new(0);
        let mut runner = proptest::test_runner::TestRunner::default();
        let checked = runner.run(&(others, 0u32..40), |(others, chunks)| {
            let word = Hostile::new(others);
            let mut least = 0;
            while let Ok(Some(chunk)) = claim(&word, 1, chunks, least) {
                prop_assert!(least <= chunk && chunk < chunks);
                least = chunk + 1;
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

    use super::{ClaimWord, Ordering, claim, pack};

    claim_word!(AtomicU64);

    const CHUNKS: u32 = 2;

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
        fn copy(&self, epoch: u32) -> u32 {
            let (mut least, mut count) = (0, 0);
            while let Some(chunk) = claim(&self.word, epoch, CHUNKS, least).unwrap() {
                let (memory, written) = &self.chunks[chunk as usize];
                // Loom reports a concurrent access.
                memory.with_mut(|_| written.fetch_add(1, Ordering::Relaxed));
                (least, count) = (chunk + 1, count + 1);
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
                        let count = shared.copy(1);
                        shared.copied.store(count, Ordering::Release);
                    }
                })
            };
            shared.word.store(pack(1, 0), Ordering::Release);
            shared.notified.store(1, Ordering::Release);
            let own = shared.copy(1);
            while own + shared.copied.load(Ordering::Acquire) < CHUNKS {
                thread::yield_now();
            }
            for (memory, written) in &shared.chunks {
                memory.with_mut(|_| assert_eq!(written.load(Ordering::Relaxed), 1));
            }
            other.join().unwrap();
        });
    }
}
