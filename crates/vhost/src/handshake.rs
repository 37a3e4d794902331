//! The handshake that lets either side of a ring sleep without being forgotten (virtio 1.3,
//! 2.7.7.2 and 2.7.10.1).
//!
//! Both sides do the same, with the roles exchanged: tell the other side something (an index, or
//! a wish to be notified), then look at what the other side told. Each must tell before it
//! looks, which a processor does not promise without a full fence in between: with one on both
//! sides, at least one of the two sees what the other told. The model at the end checks every
//! interleaving and every reordering the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

use std::sync::atomic::Ordering;

/// Tell the other side something, then look at what it told.
#[inline(always)]
pub(crate) fn tell_then_look<T>(tell: impl FnOnce(), look: impl FnOnce() -> T) -> T {
    tell();
    fence(Ordering::SeqCst);
    look()
}

#[cfg(all(loom, test))]
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU16, Ordering};
    use loom::thread;

    use super::tell_then_look;

    /// What one side publishes and the other's wish to be notified.
    #[derive(Default)]
    struct Shared {
        index: AtomicU16,
        wish: AtomicU16,
    }

    /// The producer publishes index 1 and looks whether the consumer wants to hear of it; the
    /// consumer wishes for index 1 and looks whether it is there. If the producer sends no
    /// notification, the consumer must have seen the index: else it would sleep for ever.
    #[test]
    fn spec_2_7_7_2_nobody_sleeps_beside_work() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    tell_then_look(
                        || shared.index.store(1, Ordering::Release),
                        || shared.wish.load(Ordering::Relaxed) == 1,
                    )
                })
            };
            let seen = tell_then_look(
                || shared.wish.store(1, Ordering::Relaxed),
                || shared.index.load(Ordering::Acquire) == 1,
            );
            let notified = producer.join().unwrap();
            assert!(
                notified || seen,
                "work is there, nobody was told, and nobody looked"
            );
        });
    }

    /// What was written before an index is visible to whoever sees the index.
    #[test]
    fn spec_2_7_13_entries_are_visible_before_their_index() {
        loom::model(|| {
            let entry = Arc::new(AtomicU16::new(0));
            let shared = Arc::new(Shared::default());
            let producer = {
                let (entry, shared) = (Arc::clone(&entry), Arc::clone(&shared));
                thread::spawn(move || {
                    entry.store(7, Ordering::Relaxed);
                    shared.index.store(1, Ordering::Release);
                })
            };
            if shared.index.load(Ordering::Acquire) == 1 {
                assert_eq!(entry.load(Ordering::Relaxed), 7);
            }
            producer.join().unwrap();
        });
    }
}
