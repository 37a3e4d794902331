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
