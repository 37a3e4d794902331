//! The forwarding database (FDB, IEEE 802.1Q 8.8): maps a MAC address in a VLAN to a port. A worker looks
//! every frame's destination up in it.
//!
//! The FDB is a hash table with open addressing and linear probing, in one allocation, at most half full.
//! The hash is keyed, so a guest cannot choose addresses that collide. The FDB learns entries from the
//! frames that a port sends, and removes them after [`AGEING`](crate::limits::AGEING) seconds without a
//! frame. Entries that the supervisor pins (static entries) stay.
//!
//! Workers read the table without a lock. Writers take a lock, and a sequence lock tells readers that
//! entries change slots; a reader that finds a change in progress takes the writers' lock. An entry that
//! moves to another port, or is refreshed, keeps its slot: the change is one word, and readers are not
//! disturbed.

mod chain;
mod duplicates;
mod entry;
mod list;
mod slots;

use std::hash::{BuildHasher, RandomState};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::limits::{MAX_FDB_ENTRIES, MAX_PORTS};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, fence};

pub use duplicates::Duplicate;
use duplicates::Duplicates;
pub use entry::FdbKey;
use entry::{Entry, Slot};
pub use list::ListedEntry;

/// Number of slots: twice the entries, rounded up to a power of two. Loom models have few slots and a
/// constant hash key.
const SLOTS: usize = if cfg!(loom) {
    8
} else {
    (2 * MAX_FDB_ENTRIES).next_power_of_two()
};
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

/// Number of entries that fit into a core's nearest caches, at one cache line each.
const CACHED: u32 = 256;

/// The FDB of a network. Any thread may use it; writers exclude each other.
#[derive(Debug)]
pub struct Fdb {
    slots: Box<[Slot]>,
    key: u64,
    /// The sequence lock: odd while entries change slots. A reader that finds the same even value before
    /// and after a look-up has read a consistent table.
    version: AtomicU64,
    /// Number of times that an address has moved from one port to another.
    moves: AtomicU32,
    /// Number of entries.
    entry_count: AtomicU32,
    bookkeeping: Mutex<Bookkeeping>,
}

/// The data that only writers need, under their lock.
#[derive(Debug)]
struct Bookkeeping {
    /// Number of entries of each port.
    counts: Box<[u32]>,
    /// The second in which the entry of each slot came to its port. Readers do not need it, so that it is not
    /// in the slots.
    since: Vec<u32>,
    /// The next slot that ageing inspects.
    sweep: usize,
    duplicates: Duplicates,
}

/// The result of [`Fdb::learn`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learnt {
    /// The address is new.
    New,
    /// The address is known at this port already.
    Known,
    /// The address moved to this port from that one.
    Moved(u16),
    /// The address is pinned to another port, is not a station's, or a limit is reached: nothing changed.
    Refused,
}

impl Default for Fdb {
    fn default() -> Self {
        Self::new()
    }
}

impl Fdb {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        let mut slots = Vec::with_capacity(SLOTS);
        // Advise huge pages before the first access.
        vhost::prefer_huge_pages(slots.spare_capacity_mut());
        slots.resize_with(SLOTS, Slot::default);
        Self {
            slots: slots.into_boxed_slice(),
            // Odd, so that the multiplication is a bijection.
            key: if cfg!(loom) {
                1
            } else {
                RandomState::new().hash_one(0x5eed_u64) | 1
            },
            version: AtomicU64::new(0),
            moves: AtomicU32::new(0),
            entry_count: AtomicU32::new(0),
            bookkeeping: Mutex::new(Bookkeeping {
                counts: vec![0; MAX_PORTS].into_boxed_slice(),
                // The system provides the pages of zeroes when they are written to.
                since: vec![0; SLOTS],
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

    /// Returns the number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entry_count.load(Ordering::Relaxed)
    }

    /// Returns whether the table is too large for the nearest caches, so that prefetching pays.
    #[inline(always)]
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.entries() > CACHED
    }

    fn is_full(&self) -> bool {
        self.entries() as usize >= MAX_FDB_ENTRIES
    }

    /// Returns the number of entries of a port, pinned or learnt.
    #[must_use]
    pub fn count(&self, port: u16) -> u32 {
        self.bookkeeping().count(port)
    }

    /// Returns the number of moves. A cached result of a look-up is valid while this number does not
    /// change.
    #[inline]
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.moves.load(Ordering::Acquire)
    }

    #[inline]
    fn home(&self, mac: u64) -> usize {
        // Below SLOTS, which fits into a usize.
        (mac.wrapping_mul(self.key) >> SHIFT) as usize
    }

    #[inline]
    fn entry(&self, slot: usize) -> Entry {
        self.slots.get(slot).map_or_else(Entry::default, Slot::get)
    }

    /// Returns the slot of a key, or the free slot in which it would be stored. The result may be wrong
    /// while the table changes: see [`read`](Self::read).
    #[inline]
    fn find(&self, mac: u64) -> Option<(usize, Entry)> {
        let home = self.home(mac);
        // There always is a free slot, but the search may miss it while the table changes.
        for step in 0..SLOTS {
            let slot = (home + step) % SLOTS;
            let entry = self.slots.get(slot)?.get();
            if entry.mac == mac || entry.mac == 0 {
                return Some((slot, entry));
            }
        }
        None
    }

    /// Returns the entry of a key.
    #[inline(always)]
    fn read(&self, mac: u64) -> Option<Entry> {
        let before = self.version.load(Ordering::Acquire);
        let found = self.find(mac);
        // The entry is read before the version is read again.
        fence(Ordering::Acquire);
        if before % 2 == 0 && self.version.load(Ordering::Relaxed) == before {
            return known(found);
        }
        self.read_locked(mac)
    }

    /// Returns the entry of a key while another thread changes the table: waits for the lock.
    #[cold]
    fn read_locked(&self, mac: u64) -> Option<Entry> {
        let _turn = self.bookkeeping();
        known(self.find(mac))
    }

    /// Prefetches the slot at which the search for a key begins.
    #[inline(always)]
    pub fn prefetch(&self, key: FdbKey) {
        if let Some(slot) = self.slots.get(self.home(key.bits())) {
            vhost::prefetch(slot);
        }
    }

    /// Returns the port of an address, if the FDB has an entry that has not aged out.
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

    /// Learns that an address sent a frame from a port, which may have up to `limit` entries.
    #[inline]
    pub fn learn(&self, key: impl Into<FdbKey>, port: u16, now: u32, limit: u32) -> Learnt {
        let key = key.into();
        if key.mac().is_group() || key.mac().bits() == 0 {
            return Learnt::Refused;
        }
        // Most addresses are known and need no lock.
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
            _ => self.learn_locked(key, port, now, limit),
        }
    }

    fn learn_locked(&self, key: FdbKey, port: u16, now: u32, limit: u32) -> Learnt {
        let mut bookkeeping = self.bookkeeping();
        let Some((slot, entry)) = self.find(key.bits()) else {
            return Learnt::Refused;
        };
        let known = entry.mac != 0;
        if known && entry.port == port {
            if !entry.pinned {
                if entry.expired(now) {
                    bookkeeping.set_since(slot, now);
                }
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
        bookkeeping.set_since(slot, now);
        if known {
            bookkeeping.duplicates.note(key, entry.port, port, now);
            Learnt::Moved(entry.port)
        } else {
            Learnt::New
        }
    }

    /// Pins an address to a port; returns false when the table is full.
    pub fn pin(&self, key: impl Into<FdbKey>, port: u16, now: u32) -> bool {
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
        bookkeeping.set_since(slot, now);
        true
    }

    /// Removes an address, pinned or not.
    pub fn remove(&self, key: impl Into<FdbKey>) {
        let mut bookkeeping = self.bookkeeping();
        if let Some((slot, entry)) = self.find(key.into().bits()) {
            if entry.mac != 0 {
                self.free(&mut bookkeeping, slot);
            }
        }
    }

    /// Removes the learnt entries of a port; pinned entries stay.
    pub fn remove_port(&self, port: u16) {
        let mut bookkeeping = self.bookkeeping();
        bookkeeping.duplicates.remove_port(port);
        if bookkeeping.count(port) == 0 {
            return;
        }
        self.remove_where(&mut bookkeeping, 0, SLOTS, |entry| {
            entry.port == port && !entry.pinned
        });
    }

    /// Returns the addresses that two ports use at the same time.
    #[must_use]
    pub fn duplicates(&self, now: u32) -> Vec<Duplicate> {
        self.bookkeeping().duplicates.all(now).collect()
    }

    /// Returns a duplicate that this method has not returned before.
    pub fn new_duplicate(&self) -> Option<Duplicate> {
        self.bookkeeping().duplicates.next_unreported()
    }

    /// Removes aged entries from the next 1024 slots. Regular calls keep the table clean without a long
    /// pause in forwarding.
    pub fn age(&self, now: u32) {
        const STEP: usize = 1024;
        let mut bookkeeping = self.bookkeeping();
        let from = bookkeeping.sweep;
        bookkeeping.sweep = (from + STEP) % SLOTS;
        self.remove_where(&mut bookkeeping, from, STEP, |entry| entry.expired(now));
    }
}

/// Returns the entry, unless the slot is free.
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
