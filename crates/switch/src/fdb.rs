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

use crate::limits::{MAX_PORTS, MAX_RESIDENTS};
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, fence};

pub use duplicates::Duplicate;
use duplicates::Duplicates;
pub use entry::Resident;
use entry::{Entry, Slot};

/// Slots; twice the residents, rounded up to a power of two. Models have few, and know no chance.
const SLOTS: usize = if cfg!(loom) {
    8
} else {
    (2 * MAX_RESIDENTS).next_power_of_two()
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
    ring_state: Mutex<RingState>,
}

/// What only those that change the table need.
#[derive(Debug)]
struct RingState {
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
            ring_state: Mutex::new(RingState {
                counts: vec![0; MAX_PORTS].into_boxed_slice(),
                sweep: 0,
                duplicates: Duplicates::default(),
            }),
        }
    }

    fn ring_state(&self) -> MutexGuard<'_, RingState> {
        self.ring_state
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
        self.residents() as usize >= MAX_RESIDENTS
    }

    /// Addresses at a port, pinned or learnt.
    #[must_use]
    pub fn count(&self, port: u16) -> u32 {
        self.ring_state().count(port)
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
        let _turn = self.ring_state();
        known(self.find(mac))
    }

    /// Have the place fetched where an address is looked for first.
    #[inline(always)]
    pub fn prefetch(&self, who: Resident) {
        if let Some(slot) = self.slots.get(self.home(who.bits())) {
            vhost::prefetch(slot);
        }
    }

    /// The port an address lives at, if that is known.
    #[inline(always)]
    #[must_use]
    pub fn lookup(&self, who: impl Into<Resident>, now: u32) -> Option<u16> {
        self.port(who.into().bits(), now)
    }

    #[inline(always)]
    fn port(&self, bits: u64, now: u32) -> Option<u16> {
        let entry = self.read(bits)?;
        (!entry.expired(now)).then_some(entry.port)
    }

    /// Note that an address sent something from a port, which may have at most `limit`
    /// addresses.
    #[inline]
    pub fn learn(&self, who: impl Into<Resident>, port: u16, now: u32, limit: u32) -> Learnt {
        let who = who.into();
        if who.mac().is_group() || who.mac().bits() == 0 {
            return Learnt::Refused;
        }
        // Most are known, and need no turn.
        match self.read(who.bits()) {
            Some(entry) if entry.port == port && (entry.pinned || entry.seen == now) => {
                Learnt::Known
            }
            Some(entry) if entry.port != port && entry.pinned => {
                self.ring_state()
                    .duplicates
                    .note(who, entry.port, port, now);
                Learnt::Refused
            }
            _ => self.learn_in_turn(who, port, now, limit),
        }
    }

    fn learn_in_turn(&self, who: Resident, port: u16, now: u32, limit: u32) -> Learnt {
        let mut ring_state = self.ring_state();
        let Some((slot, entry)) = self.find(who.bits()) else {
            return Learnt::Refused;
        };
        let known = entry.mac != 0;
        if known && entry.port == port {
            if !entry.pinned {
                self.put(&mut ring_state, slot, Entry { seen: now, ..entry });
            }
            return Learnt::Known;
        }
        let full = !known && self.is_full();
        if entry.pinned || full || ring_state.count(port) >= limit {
            return Learnt::Refused;
        }
        let there = Entry {
            mac: who.bits(),
            seen: now,
            port,
            pinned: false,
        };
        self.put(&mut ring_state, slot, there);
        if known {
            ring_state.duplicates.note(who, entry.port, port, now);
            Learnt::Moved(entry.port)
        } else {
            Learnt::New
        }
    }

    /// Pin an address to a port; false when the table is full.
    pub fn pin(&self, who: impl Into<Resident>, port: u16) -> bool {
        let who = who.into();
        let mut ring_state = self.ring_state();
        let Some((slot, entry)) = self.find(who.bits()) else {
            return false;
        };
        if who.mac().bits() == 0 || (entry.mac == 0 && self.is_full()) {
            return false;
        }
        let pinned = Entry {
            mac: who.bits(),
            seen: 0,
            port,
            pinned: true,
        };
        self.put(&mut ring_state, slot, pinned);
        true
    }

    /// Forget an address, pinned or not.
    pub fn forget(&self, who: impl Into<Resident>) {
        let mut ring_state = self.ring_state();
        if let Some((slot, entry)) = self.find(who.into().bits()) {
            if entry.mac != 0 {
                self.free(&mut ring_state, slot);
            }
        }
    }

    /// Forget what was learnt at a port; pinned addresses stay.
    pub fn forget_port(&self, port: u16) {
        let mut ring_state = self.ring_state();
        ring_state.duplicates.forget_port(port);
        if ring_state.count(port) == 0 {
            return;
        }
        self.forget_where(&mut ring_state, 0, SLOTS, |entry| {
            entry.port == port && !entry.pinned
        });
    }

    /// The addresses that two ports use at the same time.
    #[must_use]
    pub fn duplicates(&self, now: u32) -> Vec<Duplicate> {
        self.ring_state().duplicates.all(now).collect()
    }

    /// One of them that this has not returned before.
    pub fn new_duplicate(&self) -> Option<Duplicate> {
        self.ring_state().duplicates.news()
    }

    /// Look at the next few slots and forget what is too old there. Called now and then, it keeps
    /// the table clean without ever stalling a frame.
    pub fn age(&self, now: u32) {
        const STEP: usize = 1024;
        let mut ring_state = self.ring_state();
        let from = ring_state.sweep;
        ring_state.sweep = (from + STEP) % SLOTS;
        self.forget_where(&mut ring_state, from, STEP, |entry| entry.expired(now));
    }

    fn forget_where(
        &self,
        ring_state: &mut RingState,
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
                self.free(ring_state, slot);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Put an entry into the slot that was found for it, and keep the books.
    fn put(&self, ring_state: &mut RingState, slot: usize, entry: Entry) {
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
        self.replace(ring_state, before, entry);
    }

    /// Free a slot and close the gap, so that every entry stays reachable from its home.
    fn free(&self, ring_state: &mut RingState, slot: usize) {
        self.replace(ring_state, self.entry(slot), Entry::default());
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
    fn replace(&self, ring_state: &mut RingState, before: Entry, after: Entry) {
        if before.mac != 0 {
            self.residents.fetch_sub(1, Ordering::Relaxed);
            if let Some(count) = ring_state.counts.get_mut(usize::from(before.port)) {
                *count = count.saturating_sub(1);
            }
        }
        if after.mac != 0 {
            self.residents.fetch_add(1, Ordering::Relaxed);
            if let Some(count) = ring_state.counts.get_mut(usize::from(after.port)) {
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

impl RingState {
    fn count(&self, port: u16) -> u32 {
        self.counts.get(usize::from(port)).copied().unwrap_or(0)
    }
}

#[cfg(all(loom, test))]
mod model;
#[cfg(all(test, not(loom)))]
mod tests;
