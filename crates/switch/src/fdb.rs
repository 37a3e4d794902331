//! Who lives where: the table from MAC address, in its VLAN, to port, asked once per frame.
//!
//! Open addressing with linear probing, in one allocation made at the start, at most half full.
//! The hash is keyed, so a guest cannot aim at one slot. Entries are learnt from the frames a port
//! sends and forgotten when not heard of for [`AGEING`](crate::limits::AGEING) seconds, or pinned by the supervisor and
//! kept.
//!
//! Workers look things up without a lock. Those that change the table take turns, and say by a
//! version that residents change places (a sequence lock); who looks things up meanwhile waits for
//! a turn too. A resident that moves to another port, or is heard of again, keeps its place: that
//! is one word, and disturbs nobody.

mod chain;
mod duplicates;
mod entry;

use std::hash::{BuildHasher, RandomState};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::limits::{MAX_FDB_ENTRIES, MAX_PORTS};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, fence};

pub use duplicates::Duplicate;
use duplicates::Duplicates;
pub use entry::FdbKey;
use entry::{Entry, Slot};

/// Slots; twice the residents, rounded up to a power of two. Models have few, and know no chance.
const SLOTS: usize = if cfg!(loom) {
    8
} else {
    (2 * MAX_FDB_ENTRIES).next_power_of_two()
};
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

/// Residents whose entries stay in a processor's nearest caches, a line each.
const CACHED: u32 = 256;

/// The residency table of a network. Any thread may use it; those that change it take turns.
#[derive(Debug)]
pub struct Fdb {
    slots: Box<[Slot]>,
    key: u64,
    /// Odd while residents change places; so whoever finds it even, and the same afterwards, has
    /// looked at a table that stood still.
    version: AtomicU64,
    /// How often a resident has moved from one port to another.
    moves: AtomicU32,
    /// How many addresses are known.
    residents: AtomicU32,
    bookkeeping: Mutex<Bookkeeping>,
}

/// What only those that change the table need.
#[derive(Debug)]
struct Bookkeeping {
    /// Addresses of each port.
    counts: Box<[u32]>,
    /// Next slot that ageing looks at.
    sweep: usize,
    duplicates: Duplicates,
}

/// What came of [`Fdb::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// The address is new here.
    New,
    /// It was known, possibly at the port given.
    Known,
    /// It moved here from that port.
    Moved(u16),
    /// It is pinned to another port, or the table is full: nothing changed.
    Refused,
}

impl Default for Fdb {
    fn default() -> Self {
        Self::new()
    }
}

impl Fdb {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let mut slots = Vec::with_capacity(SLOTS);
        // Before it is touched for the first time.
        vhost::prefer_huge_pages(slots.spare_capacity_mut());
        slots.resize_with(SLOTS, Slot::default);
        Self {
            slots: slots.into_boxed_slice(),
            // Odd, so that multiplying by it loses nothing.
            key: if cfg!(loom) {
                1
            } else {
                RandomState::new().hash_one(0x5eed_u64) | 1
            },
            version: AtomicU64::new(0),
            moves: AtomicU32::new(0),
            residents: AtomicU32::new(0),
            bookkeeping: Mutex::new(Bookkeeping {
                counts: vec![0; MAX_PORTS].into_boxed_slice(),
                sweep: 0,
                duplicates: Duplicates::default(),
            }),
        }
    }

    fn bookkeeping(&self) -> MutexGuard<'_, Bookkeeping> {
        self.bookkeeping
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many addresses are known.
    #[must_use]
    pub fn residents(&self) -> u32 {
        self.residents.load(Ordering::Relaxed)
    }

    /// Whether looking somebody up is likely to have to wait for memory.
    #[inline(always)]
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.residents() > CACHED
    }

    fn is_full(&self) -> bool {
        self.residents() as usize >= MAX_FDB_ENTRIES
    }

    /// Addresses at a port, pinned or learnt.
    #[must_use]
    pub fn count(&self, port: u16) -> u32 {
        self.bookkeeping().count(port)
    }

    /// How often a resident has moved: whoever remembers where one was compares.
    #[inline]
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }

    #[inline]
    fn home(&self, mac: u64) -> usize {
        // Below SLOTS, which fits.
        (mac.wrapping_mul(self.key) >> SHIFT) as usize
    }

    #[inline]
    fn entry(&self, slot: usize) -> Entry {
        self.slots.get(slot).map_or_else(Entry::default, Slot::get)
    }

    /// The slot of an address, or the free one where it would go. While the table changes the
    /// answer may be any: see [`read`](Self::read).
    #[inline]
    fn find(&self, mac: u64) -> Option<(usize, Entry)> {
        let home = self.home(mac);
        // There is a free slot always, but it may change its place while we look.
        for step in 0..SLOTS {
            let slot = (home + step) % SLOTS;
            let entry = self.slots.get(slot)?.get();
            if entry.mac == mac || entry.mac == 0 {
                return Some((slot, entry));
            }
        }
        None
    }

    /// What is known of an address.
    #[inline(always)]
    fn read(&self, mac: u64) -> Option<Entry> {
        let before = self.version.load(Ordering::Acquire);
        let found = self.find(mac);
        // What was read is read before the version is read again.
        fence(Ordering::Acquire);
        if before % 2 == 0 && self.version.load(Ordering::Relaxed) == before {
            return known(found);
        }
        self.read_in_turn(mac)
    }

    /// The same when somebody changes the table.
    #[cold]
    fn read_in_turn(&self, mac: u64) -> Option<Entry> {
        let _turn = self.bookkeeping();
        known(self.find(mac))
    }

    /// Have the place fetched where an address is looked for first.
    #[inline(always)]
    pub fn prefetch(&self, key: FdbKey) {
        if let Some(slot) = self.slots.get(self.home(key.bits())) {
            vhost::prefetch(slot);
        }
    }

    /// The port an address lives at, if that is known.
    #[inline(always)]
    #[must_use]
    pub fn lookup(&self, key: impl Into<FdbKey>, now: u32) -> Option<u16> {
        self.port(key.into().bits(), now)
    }

    #[inline(always)]
    fn port(&self, bits: u64, now: u32) -> Option<u16> {
        let entry = self.read(bits)?;
        (!entry.expired(now)).then_some(entry.port)
    }

    /// Note that an address sent something from a port, which may have at most `limit`
    /// addresses.
    #[inline]
    pub fn learn(&self, key: impl Into<FdbKey>, port: u16, now: u32, limit: u32) -> Learnt {
        let key = key.into();
        if key.mac().is_group() || key.mac().bits() == 0 {
            return Learnt::Refused;
        }
        // Most are known, and need no turn.
        match self.read(key.bits()) {
            Some(entry) if entry.port == port && (entry.pinned || entry.seen == now) => {
                Learnt::Known
            }
            Some(entry) if entry.port != port && entry.pinned => {
                self.bookkeeping()
                    .duplicates
                    .note(key, entry.port, port, now);
                Learnt::Refused
            }
            _ => self.learn_in_turn(key, port, now, limit),
        }
    }

    fn learn_in_turn(&self, key: FdbKey, port: u16, now: u32, limit: u32) -> Learnt {
        let mut bookkeeping = self.bookkeeping();
        let Some((slot, entry)) = self.find(key.bits()) else {
            return Learnt::Refused;
        };
        let known = entry.mac != 0;
        if known && entry.port == port {
            if !entry.pinned {
                self.put(&mut bookkeeping, slot, Entry { seen: now, ..entry });
            }
            return Learnt::Known;
        }
        let full = !known && self.is_full();
        if entry.pinned || full || bookkeeping.count(port) >= limit {
            return Learnt::Refused;
        }
        let there = Entry {
            mac: key.bits(),
            seen: now,
            port,
            pinned: false,
        };
        self.put(&mut bookkeeping, slot, there);
        if known {
            bookkeeping.duplicates.note(key, entry.port, port, now);
            Learnt::Moved(entry.port)
        } else {
            Learnt::New
        }
    }

    /// Pin an address to a port; false when the table is full.
    pub fn pin(&self, key: impl Into<FdbKey>, port: u16) -> bool {
        let key = key.into();
        let mut bookkeeping = self.bookkeeping();
        let Some((slot, entry)) = self.find(key.bits()) else {
            return false;
        };
        if key.mac().bits() == 0 || (entry.mac == 0 && self.is_full()) {
            return false;
        }
        let pinned = Entry {
            mac: key.bits(),
            seen: 0,
            port,
            pinned: true,
        };
        self.put(&mut bookkeeping, slot, pinned);
        true
    }

    /// Forget an address, pinned or not.
    pub fn forget(&self, key: impl Into<FdbKey>) {
        let mut bookkeeping = self.bookkeeping();
        if let Some((slot, entry)) = self.find(key.into().bits()) {
            if entry.mac != 0 {
                self.free(&mut bookkeeping, slot);
            }
        }
    }

    /// Forget what was learnt at a port; pinned addresses stay.
    pub fn forget_port(&self, port: u16) {
        let mut bookkeeping = self.bookkeeping();
        bookkeeping.duplicates.forget_port(port);
        if bookkeeping.count(port) == 0 {
            return;
        }
        self.forget_where(&mut bookkeeping, 0, SLOTS, |entry| {
            entry.port == port && !entry.pinned
        });
    }

    /// The addresses that two ports use at the same time.
    #[must_use]
    pub fn duplicates(&self, now: u32) -> Vec<Duplicate> {
        self.bookkeeping().duplicates.all(now).collect()
    }

    /// One of them that this has not returned before.
    pub fn new_duplicate(&self) -> Option<Duplicate> {
        self.bookkeeping().duplicates.next_unreported()
    }

    /// Look at the next few slots and forget what is too old there. Called now and then, it keeps
    /// the table clean without ever stalling a frame.
    pub fn age(&self, now: u32) {
        const STEP: usize = 1024;
        let mut bookkeeping = self.bookkeeping();
        let from = bookkeeping.sweep;
        bookkeeping.sweep = (from + STEP) % SLOTS;
        self.forget_where(&mut bookkeeping, from, STEP, |entry| entry.expired(now));
    }

    fn forget_where(
        &self,
        bookkeeping: &mut Bookkeeping,
        from: usize,
        count: usize,
        condition: impl Fn(&Entry) -> bool,
    ) {
        let mut slot = from;
        for _ in 0..count {
            // Freeing pulls a later entry into this slot: look again before going on.
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

    /// Put an entry into the slot that was found for it, and keep the books.
    fn put(&self, bookkeeping: &mut Bookkeeping, slot: usize, entry: Entry) {
        let Some(place) = self.slots.get(slot) else {
            return;
        };
        let before = place.get();
        if before.mac == entry.mac {
            // One word changes: whoever reads it finds the old one or the new one.
            place.rest.store(entry.rest(), Ordering::Relaxed);
            if before.port != entry.port {
                // Whoever sees the count sees the move.
                self.moves.fetch_add(1, Ordering::Release);
            }
        } else {
            self.change(|| place.set(entry));
        }
        self.replace(bookkeeping, before, entry);
    }

    /// Free a slot and close the gap, so that every entry stays reachable from its home.
    fn free(&self, bookkeeping: &mut Bookkeeping, slot: usize) {
        self.replace(bookkeeping, self.entry(slot), Entry::default());
        self.change(|| {
            let mut gap = slot;
            let mut next = (slot + 1) % SLOTS;
            loop {
                let entry = self.entry(next);
                if entry.mac == 0 {
                    break;
                }
                // The entry may move into the gap if its home is not between the two.
                let distance = |to: usize| (to + SLOTS - self.home(entry.mac)) % SLOTS;
                if distance(gap) <= distance(next) {
                    self.set(gap, entry);
                    gap = next;
                }
                next = (next + 1) % SLOTS;
            }
            self.set(gap, Entry::default());
        });
    }

    /// Count one entry out and another in.
    fn replace(&self, bookkeeping: &mut Bookkeeping, before: Entry, after: Entry) {
        if before.mac != 0 {
            self.residents.fetch_sub(1, Ordering::Relaxed);
            if let Some(count) = bookkeeping.counts.get_mut(usize::from(before.port)) {
                *count = count.saturating_sub(1);
            }
        }
        if after.mac != 0 {
            self.residents.fetch_add(1, Ordering::Relaxed);
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

    /// Change who is in which slot. Only for whoever has the books.
    fn change(&self, act: impl FnOnce()) {
        // Nobody else writes it. In one step because loom does not try what happens before a write
        // that follows a read of one's own.
        let before = self.version.fetch_add(1, Ordering::Relaxed);
        // Nobody sees a change and not that there is one.
        fence(Ordering::Release);
        act();
        self.version
            .store(before.wrapping_add(2), Ordering::Release);
    }
}

/// Only what is known.
#[inline]
fn known(found: Option<(usize, Entry)>) -> Option<Entry> {
    found.map(|(_, entry)| entry).filter(|entry| entry.mac != 0)
}

impl Bookkeeping {
    fn count(&self, port: u16) -> u32 {
        self.counts.get(usize::from(port)).copied().unwrap_or(0)
    }
}

#[cfg(all(loom, test))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
