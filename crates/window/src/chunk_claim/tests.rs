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
