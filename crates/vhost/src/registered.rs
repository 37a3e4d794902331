//! The bounds of one registered mapping, written by the thread that maps and unmaps and read by a signal
//! handler at any moment, without a lock.
//!
//! An entry is used again for other mappings. A handler that read the start of one mapping and the end of
//! the next would take what lies between for registered memory. So each change counts a generation up
//! twice, to an odd number while it is under way, and bounds count only if the generation was the same
//! even number before and after they were read (a sequence lock).

use std::sync::atomic::{AtomicUsize, Ordering};

/// No mapping begins here: the entry is free.
const FREE: usize = 0;
/// Nor here: the entry was taken and is being filled.
const TAKEN: usize = 1;

/// The operations of an atomic number that an entry needs: the standard library's, and loom's in models.
pub(crate) trait AtomicWord {
    fn load(&self, order: Ordering) -> usize;
    fn store(&self, value: usize, order: Ordering);
    fn add(&self, value: usize, order: Ordering) -> usize;
    /// From `old` to `new`; whether it was `old`.
    fn exchange(&self, old: usize, new: usize) -> bool;
}

impl AtomicWord for AtomicUsize {
    fn load(&self, order: Ordering) -> usize {
        self.load(order)
    }

    fn store(&self, value: usize, order: Ordering) {
        self.store(value, order);
    }

    fn add(&self, value: usize, order: Ordering) -> usize {
        self.fetch_add(value, order)
    }

    fn exchange(&self, old: usize, new: usize) -> bool {
        let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
        self.compare_exchange(old, new, success, failure).is_ok()
    }
}

/// An entry of the table.
#[derive(Debug)]
pub(crate) struct Entry<W = AtomicUsize> {
    generation: W,
    start: W,
    end: W,
}

impl Entry {
    pub(crate) const fn new() -> Self {
        Self {
            generation: AtomicUsize::new(0),
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
        }
    }
}

impl<W: AtomicWord> Entry<W> {
    /// Take a free entry for a mapping; whether it was free.
    pub(crate) fn take(&self, start: usize, end: usize) -> bool {
        if !self.start.exchange(FREE, TAKEN) {
            return false;
        }
        self.change(|| {
            // Released: who reads a bound of this mapping sees the odd generation, or a later one.
            self.end.store(end, Ordering::Release);
            self.start.store(start, Ordering::Release);
        });
        true
    }

    /// Give the entry back. Nobody else may have its mapping by then.
    pub(crate) fn free(&self) {
        self.change(|| self.end.store(0, Ordering::Release));
        self.start.store(FREE, Ordering::Release);
    }

    fn change(&self, store: impl FnOnce()) {
        self.generation.add(1, Ordering::Relaxed);
        store();
        self.generation.add(1, Ordering::Release);
    }

    /// The bounds of the mapping, if it holds this address. A mapping that is registered for as long as
    /// this takes is always found.
    pub(crate) fn bounds_around(&self, address: usize) -> Option<(usize, usize)> {
        let before = self.generation.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // Not before the loads above, which acquire.
        let after = self.generation.load(Ordering::Relaxed);
        let whole = before == after && before % 2 == 0;
        let holds = start > TAKEN && (start..end).contains(&address);
        (whole && holds).then_some((start, end))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_holds_one_mapping_at_a_time() {
        let entry = Entry::new();
        assert_eq!(entry.bounds_around(0), None);
        assert!(entry.take(4096, 8192));
        assert!(!entry.take(8192, 12_288));
        assert_eq!(entry.bounds_around(8191), Some((4096, 8192)));
        assert_eq!(entry.bounds_around(8192), None);
        entry.free();
        assert_eq!(entry.bounds_around(4096), None);
        assert!(entry.take(8192, 12_288));
        assert_eq!(entry.bounds_around(8192), Some((8192, 12_288)));
    }
}

#[cfg(all(test, loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    use super::*;

    impl AtomicWord for AtomicUsize {
        fn load(&self, order: Ordering) -> usize {
            self.load(order)
        }

        fn store(&self, value: usize, order: Ordering) {
            self.store(value, order);
        }

        fn add(&self, value: usize, order: Ordering) -> usize {
            self.fetch_add(value, order)
        }

        fn exchange(&self, old: usize, new: usize) -> bool {
            let (success, failure) = (Ordering::Acquire, Ordering::Relaxed);
            self.compare_exchange(old, new, success, failure).is_ok()
        }
    }

    fn entry() -> Entry<AtomicUsize> {
        Entry {
            generation: AtomicUsize::new(0),
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
        }
    }

    /// A fault at 30 hits a mapping of another entry. In this one, a mapping before it goes and one behind
    /// it comes, and the other way round: at no time does this entry hold 30.
    #[test]
    fn bounds_of_two_mappings_are_never_mixed() {
        for [first, second] in [[(10, 20), (40, 60)], [(40, 60), (10, 20)]] {
            loom::model(move || {
                let entry = Arc::new(entry());
                assert!(entry.take(first.0, first.1));
                let handler = {
                    let entry = Arc::clone(&entry);
                    thread::spawn(move || entry.bounds_around(30))
                };
                entry.free();
                assert!(entry.take(second.0, second.1));
                assert_eq!(handler.join().unwrap(), None);
            });
        }
    }

    /// Three in a row, of which the first and the last begin at the same place. With up to three
    /// interruptions: every order takes minutes.
    #[test]
    fn a_start_that_comes_back_does_not_vouch_for_another_end() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(|| {
            let entry = Arc::new(entry());
            assert!(entry.take(10, 20));
            let handler = {
                let entry = Arc::clone(&entry);
                thread::spawn(move || entry.bounds_around(30))
            };
            for (start, end) in [(40, 60), (10, 20)] {
                entry.free();
                assert!(entry.take(start, end));
            }
            assert_eq!(handler.join().unwrap(), None);
        });
    }

    /// A mapping that stays is found, whatever else is registered meanwhile; one that goes is found whole
    /// or not at all.
    #[test]
    fn what_is_found_is_a_mapping_that_was_registered() {
        loom::model(|| {
            let entry = Arc::new(entry());
            assert!(entry.take(10, 20));
            let handler = {
                let entry = Arc::clone(&entry);
                thread::spawn(move || entry.bounds_around(15))
            };
            entry.free();
            assert!(entry.take(12, 60));
            let found = handler.join().unwrap();
            assert!(
                matches!(found, None | Some((10, 20) | (12, 60))),
                "{found:?}"
            );
        });
    }
}
