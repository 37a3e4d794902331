//! The store-fence-load handshake that prevents lost wake-ups on a ring (virtio 1.3, 2.7.7.2 and
//! 2.7.10.1).
//!
//! Both sides follow the same protocol. Each side first publishes a value (an index, or the index
//! at which it wants a notification) and then reads the value that the other side published. The
//! store must become visible before the load executes. A processor guarantees this order only with
//! a full fence between the two: with a fence on both sides, at least one side sees the other's
//! value. The loom model at the end of this file checks every interleaving and every reordering
//! that the memory model allows.

#[cfg(loom)]
use loom::sync::atomic::fence;
#[cfg(not(loom))]
use std::sync::atomic::fence;

use std::sync::atomic::Ordering;

/// Calls `publish`, which stores a value for the other side, then a full fence, then `check`, which
/// reads the value that the other side stored.
#[inline(always)]
pub(crate) fn publish_then_check<T>(publish: impl FnOnce(), check: impl FnOnce() -> T) -> T {
    publish();
    fence(Ordering::SeqCst);
    check()
}

#[cfg(all(loom, test))]
mod model {
    use std::sync::Arc;

    use loom::sync::atomic::{AtomicU16, Ordering};
    use loom::thread;

    use super::publish_then_check;

    /// The producer's index, and the index at which the consumer wants a notification.
    #[derive(Default)]
    struct Shared {
        index: AtomicU16,
        event: AtomicU16,
    }

    /// The producer publishes index 1 and checks whether the consumer requested a notification for
    /// it. The consumer requests a notification for index 1 and checks whether the index is there.
    /// If the producer sends no notification, the consumer must have seen the index; otherwise the
    /// consumer would sleep without a limit.
    #[test]
    fn spec_2_7_7_2_no_wake_up_is_lost() {
        loom::model(|| {
            let shared = Arc::new(Shared::default());
            let producer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    publish_then_check(
                        || shared.index.store(1, Ordering::Release),
                        || shared.event.load(Ordering::Relaxed) == 1,
                    )
                })
            };
            let seen = publish_then_check(
                || shared.event.store(1, Ordering::Relaxed),
                || shared.index.load(Ordering::Acquire) == 1,
            );
            let notified = producer.join().unwrap();
            assert!(notified || seen, "neither side saw the value of the other");
        });
    }

    /// A consumer that sees the index also sees what the producer wrote before it.
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
