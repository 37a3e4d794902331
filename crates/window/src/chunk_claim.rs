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
mod tests;

#[cfg(all(test, loom))]
mod model;
