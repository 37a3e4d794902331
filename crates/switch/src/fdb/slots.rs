//! Changes the slots of the FDB: all functions here are for writers, which have the lock of the [`Bookkeeping`].

use std::sync::atomic::Ordering;

use super::entry::Entry;
use super::{Bookkeeping, Fdb, SLOTS};
use crate::sync::fence;

impl Fdb {
    /// Removes the entries of `count` slots, beginning at `from`, for which the condition holds.
    pub(super) fn remove_where(
        &self,
        bookkeeping: &mut Bookkeeping,
        from: usize,
        count: usize,
        condition: impl Fn(&Entry) -> bool,
    ) {
        let mut slot = from;
        for _ in 0..count {
            // Removing an entry can move a later one into this slot, so the slot is inspected again.
            loop {
                let entry = self.entry(slot);
                if entry.mac == 0 || !condition(&entry) {
                    break;
                }
                self.free(bookkeeping, slot);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Stores an entry in the slot that `find` returned, and updates the counts.
    pub(super) fn put(&self, bookkeeping: &mut Bookkeeping, slot: usize, entry: Entry) {
        let Some(place) = self.slots.get(slot) else {
            return;
        };
        let before = place.get();
        if before.mac == entry.mac {
            // One word changes: a reader finds the old word or the new one.
            place.rest.store(entry.rest(), Ordering::Relaxed);
            if before.port != entry.port {
                // Release: a reader that sees the new count also sees the move.
                self.moves.fetch_add(1, Ordering::Release);
            }
        } else {
            self.change(|| place.set(entry));
        }
        self.replace(bookkeeping, before, entry);
    }

    /// Frees a slot and moves later entries into the gap, so that the search still finds every entry.
    pub(super) fn free(&self, bookkeeping: &mut Bookkeeping, slot: usize) {
        self.replace(bookkeeping, self.entry(slot), Entry::default());
        self.change(|| {
            let mut gap = slot;
            let mut next = (slot + 1) % SLOTS;
            loop {
                let entry = self.entry(next);
                if entry.mac == 0 {
                    break;
                }
                // The entry may move into the gap unless its home slot lies between the gap and its
                // present slot.
                let distance = |to: usize| (to + SLOTS - self.home(entry.mac)) % SLOTS;
                if distance(gap) <= distance(next) {
                    self.set(gap, entry);
                    bookkeeping.set_since(gap, bookkeeping.since(next));
                    gap = next;
                }
                next = (next + 1) % SLOTS;
            }
            self.set(gap, Entry::default());
        });
    }

    /// Updates the counts when `after` replaces `before`.
    fn replace(&self, bookkeeping: &mut Bookkeeping, before: Entry, after: Entry) {
        if before.mac != 0 {
            self.entry_count.fetch_sub(1, Ordering::Relaxed);
            if let Some(count) = bookkeeping.counts.get_mut(usize::from(before.port)) {
                *count = count.saturating_sub(1);
            }
        }
        if after.mac != 0 {
            self.entry_count.fetch_add(1, Ordering::Relaxed);
            if let Some(count) = bookkeeping.counts.get_mut(usize::from(after.port)) {
                *count += 1;
            }
        }
    }

    fn set(&self, slot: usize, entry: Entry) {
        if let Some(place) = self.slots.get(slot) {
            place.set(entry);
        }
    }

    /// Calls `act`, which changes the contents of slots, under the sequence lock. The caller must have the
    /// writers' lock.
    fn change(&self, act: impl FnOnce()) {
        // Only the owner of the writers' lock changes the version. One atomic step, because loom does not
        // explore what happens between a thread's own read and its following write.
        let before = self.version.fetch_add(1, Ordering::Relaxed);
        // A reader that sees a change also sees the odd version.
        fence(Ordering::Release);
        act();
        self.version
            .store(before.wrapping_add(2), Ordering::Release);
    }
}
