//! The bounds of one registered mapping. The thread that maps and unmaps writes them, and a signal
//! handler reads them at any moment, without a lock.
//!
//! An entry is reused for other mappings. A handler that read the start of one mapping and the end of the
//! next would take the memory between them for registered memory. So the bounds are under a sequence
//! lock: each change increments a generation twice, which makes it odd while the change is in progress,
//! and a reader accepts the bounds only if it read the same even generation before and after them.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The start address of a free entry; no mapping begins at 0.
const FREE: usize = 0;
/// The start address of an entry that is taken and not filled yet; no mapping begins at 1.
const TAKEN: usize = 1;

/// The operations on an atomic word that an entry needs: implemented by the standard library's atomic,
/// and by loom's in models.
pub(crate) trait AtomicWord {
    fn load(&self, order: Ordering) -> usize;
    fn store(&self, value: usize, order: Ordering);
    fn add(&self, value: usize, order: Ordering) -> usize;
    /// Replaces `old` by `new`; returns whether the value was `old`.
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
    /// Takes a free entry for a mapping; returns whether the entry was free.
    pub(crate) fn take(&self, start: usize, end: usize) -> bool {
        if !self.start.exchange(FREE, TAKEN) {
            return false;
        }
        self.change(|| {
            // Release: a reader that sees a bound of this mapping also sees the odd generation, or a
            // later one.
            self.end.store(end, Ordering::Release);
            self.start.store(start, Ordering::Release);
        });
        true
    }

    /// Frees the entry. The caller must be the only user of its mapping.
    pub(crate) fn free(&self) {
        self.change(|| self.end.store(0, Ordering::Release));
        self.start.store(FREE, Ordering::Release);
    }

    fn change(&self, store: impl FnOnce()) {
        self.generation.add(1, Ordering::Relaxed);
        store();
        self.generation.add(1, Ordering::Release);
    }

    /// Returns the bounds of the mapping if it contains `address`. Always finds a mapping that stays
    /// registered during the call.
    pub(crate) fn bounds_around(&self, address: usize) -> Option<(usize, usize)> {
        let before = self.generation.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Acquire);
        // The acquire loads above keep this load behind them.
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
    fn an_entry_registers_one_mapping_at_a_time() {
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

    /// A fault at address 30 belongs to a mapping of another entry. This entry's mapping is replaced,
    /// from below 30 to above 30 and the other way round: at no time does this entry contain 30.
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

    /// Three mappings in a row, of which the first and the last begin at the same address (the ABA
    /// problem). Limited to three preemptions: all interleavings would take minutes.
    #[test]
    fn a_start_address_that_recurs_is_not_combined_with_another_end() {
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

    /// A reader finds a mapping that is being replaced whole, or not at all.
    #[test]
    fn a_reader_finds_only_bounds_that_were_registered_together() {
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
