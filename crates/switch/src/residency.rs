//! Who lives where: the table from MAC address, in its VLAN, to port, asked once per frame.
//!
//! Open addressing with linear probing, in one allocation made at the start, at most half full.
//! The hash is keyed, so a guest cannot aim at one slot. Entries are learnt from the frames a port
//! sends and forgotten when not heard of for [`AGEING`] seconds, or pinned by the supervisor and
//! kept.

use std::hash::{BuildHasher, RandomState};

use crate::limits::{AGEING, MAX_PORTS, MAX_RESIDENTS};
use crate::mac::Mac;

/// Slots; twice the residents, rounded up to a power of two.
const SLOTS: usize = (2 * MAX_RESIDENTS).next_power_of_two();
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

/// Residents whose entries stay in a processor's nearest caches, a line each.
const CACHED: usize = 256;

/// An address in a VLAN: what the table knows. VLAN 0 is that of networks without VLANs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident(u64);

impl Resident {
    /// An address in a VLAN.
    #[inline]
    #[must_use]
    pub fn new(mac: Mac, vlan: u16) -> Self {
        Self(u64::from(vlan) << 48 | mac.bits())
    }

    /// The address.
    #[inline]
    #[must_use]
    pub fn mac(self) -> Mac {
        Mac::from_bits(self.0)
    }

    fn bits(self) -> u64 {
        self.0
    }
}

impl From<Mac> for Resident {
    fn from(mac: Mac) -> Self {
        Self::new(mac, 0)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The resident, or 0 for a free slot: no station has the address zero.
    mac: u64,
    /// When it was last heard of, in seconds.
    seen: u32,
    port: u16,
    pinned: bool,
}

/// The residency table of a network.
#[derive(Debug)]
pub struct Residency {
    slots: Box<[Entry]>,
    residents: usize,
    /// Addresses of each port.
    counts: Box<[u32]>,
    key: u64,
    /// Next slot that ageing looks at.
    sweep: usize,
}

/// What came of [`Residency::learn`].
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

impl Default for Residency {
    fn default() -> Self {
        Self::new()
    }
}

impl Residency {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        let mut slots = vec![Entry::default(); SLOTS].into_boxed_slice();
        vhost::prefer_huge_pages(&mut slots);
        Self {
            slots,
            residents: 0,
            counts: vec![0; MAX_PORTS].into_boxed_slice(),
            // Odd, so that multiplying by it loses nothing.
            key: RandomState::new().hash_one(0x5eed_u64) | 1,
            sweep: 0,
        }
    }

    /// How many addresses are known.
    #[must_use]
    pub fn residents(&self) -> usize {
        self.residents
    }

    /// Whether looking somebody up is likely to have to wait for memory.
    #[inline(always)]
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.residents > CACHED
    }

    #[inline]
    fn home(&self, mac: u64) -> usize {
        // Below SLOTS, which fits.
        (mac.wrapping_mul(self.key) >> SHIFT) as usize
    }

    /// The slot of an address, or the free one where it would go.
    #[inline]
    fn find(&self, mac: u64) -> Option<(usize, Entry)> {
        let mut slot = self.home(mac);
        loop {
            let entry = *self.slots.get(slot)?;
            if entry.mac == mac || entry.mac == 0 {
                return Some((slot, entry));
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Have the place fetched where an address is looked for first.
    #[inline(always)]
    pub fn prefetch(&self, who: Resident) {
        if let Some(slot) = self.slots.get(self.home(who.bits())) {
            vhost::prefetch(slot);
        }
    }

    /// The port an address lives at, if that is known.
    #[inline]
    #[must_use]
    pub fn lookup(&self, who: impl Into<Resident>, now: u32) -> Option<u16> {
        let (_, entry) = self.find(who.into().bits())?;
        (entry.mac != 0 && !entry.expired(now)).then_some(entry.port)
    }

    /// Note that an address sent something from a port, which may have at most `limit`
    /// addresses.
    #[inline]
    pub fn learn(&mut self, who: impl Into<Resident>, port: u16, now: u32, limit: u32) -> Learnt {
        let who = who.into();
        if who.mac().is_group() || who.mac().bits() == 0 {
            return Learnt::Refused;
        }
        let Some((slot, entry)) = self.find(who.bits()) else {
            return Learnt::Refused;
        };
        let known = entry.mac != 0;
        if known && entry.port == port {
            if !entry.pinned {
                self.put(slot, Entry { seen: now, ..entry });
            }
            return Learnt::Known;
        }
        let full = !known && self.residents >= MAX_RESIDENTS;
        if entry.pinned || full || self.count(port) >= limit {
            return Learnt::Refused;
        }
        self.put(
            slot,
            Entry {
                mac: who.bits(),
                seen: now,
                port,
                pinned: false,
            },
        );
        if known {
            Learnt::Moved(entry.port)
        } else {
            Learnt::New
        }
    }

    /// Pin an address to a port; false when the table is full.
    pub fn pin(&mut self, who: impl Into<Resident>, port: u16) -> bool {
        let who = who.into();
        let Some((slot, entry)) = self.find(who.bits()) else {
            return false;
        };
        if who.mac().bits() == 0 || (entry.mac == 0 && self.residents >= MAX_RESIDENTS) {
            return false;
        }
        self.put(
            slot,
            Entry {
                mac: who.bits(),
                seen: 0,
                port,
                pinned: true,
            },
        );
        true
    }

    /// Forget an address, pinned or not.
    pub fn forget(&mut self, who: impl Into<Resident>) {
        if let Some((slot, entry)) = self.find(who.into().bits()) {
            if entry.mac != 0 {
                self.free(slot);
            }
        }
    }

    /// Forget what was learnt at a port; pinned addresses stay.
    pub fn forget_port(&mut self, port: u16) {
        if self.count(port) == 0 {
            return;
        }
        self.forget_where(0, SLOTS, |entry| entry.port == port && !entry.pinned);
    }

    /// Look at the next few slots and forget what is too old there. Called now and then, it keeps
    /// the table clean without ever stalling a frame.
    pub fn age(&mut self, now: u32) {
        const STEP: usize = 1024;
        let from = self.sweep;
        self.sweep = (from + STEP) % SLOTS;
        self.forget_where(from, STEP, |entry| entry.expired(now));
    }

    /// Addresses at a port, pinned or learnt.
    #[must_use]
    pub fn count(&self, port: u16) -> u32 {
        self.counts.get(usize::from(port)).copied().unwrap_or(0)
    }

    fn forget_where(&mut self, from: usize, count: usize, condition: impl Fn(&Entry) -> bool) {
        let mut slot = from;
        for _ in 0..count {
            // Freeing pulls a later entry into this slot: look again before going on.
            while let Some(entry) = self.slots.get(slot).copied() {
                if entry.mac == 0 || !condition(&entry) {
                    break;
                }
                self.free(slot);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    /// Put an entry into the slot that was found for it, and keep the books.
    #[inline]
    fn put(&mut self, slot: usize, entry: Entry) {
        let Some(place) = self.slots.get_mut(slot) else {
            return;
        };
        let before = std::mem::replace(place, entry);
        if before.mac != entry.mac || before.port != entry.port {
            self.book(before, false);
            self.book(entry, true);
        }
    }

    /// Count an entry in or out.
    fn book(&mut self, entry: Entry, comes: bool) {
        if entry.mac == 0 {
            return;
        }
        let step = |count: u32| {
            if comes {
                count + 1
            } else {
                count.saturating_sub(1)
            }
        };
        self.residents = if comes {
            self.residents + 1
        } else {
            self.residents - 1
        };
        if let Some(count) = self.counts.get_mut(usize::from(entry.port)) {
            *count = step(*count);
        }
    }

    /// Free a slot and close the gap, so that every entry stays reachable from its home.
    fn free(&mut self, slot: usize) {
        let mut gap = slot;
        let mut next = (slot + 1) % SLOTS;
        while let Some(entry) = self.slots.get(next).copied() {
            if entry.mac == 0 {
                break;
            }
            // The entry may move into the gap if its home is not between the two.
            let distance = |to: usize| (to + SLOTS - self.home(entry.mac)) % SLOTS;
            if distance(gap) <= distance(next) {
                self.put(gap, entry);
                gap = next;
            }
            next = (next + 1) % SLOTS;
        }
        self.put(gap, Entry::default());
    }
}

impl Entry {
    #[inline]
    fn expired(&self, now: u32) -> bool {
        !self.pinned && now.wrapping_sub(self.seen) > AGEING
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac::from_octets([0x52, 0x54, a, b, c, d])
    }

    #[test]
    fn a_learnt_address_moves_and_ages() {
        let mut table = Residency::new();
        assert_eq!(table.learn(mac(1), 3, 10, u32::MAX), Learnt::New);
        assert_eq!(table.lookup(mac(1), 10), Some(3));
        assert_eq!(table.learn(mac(1), 4, 20, u32::MAX), Learnt::Moved(3));
        assert_eq!(table.lookup(mac(1), 20 + AGEING), Some(4));
        assert_eq!(table.lookup(mac(1), 21 + AGEING), None);
    }

    #[test]
    fn a_pinned_address_neither_moves_nor_ages() {
        let mut table = Residency::new();
        assert!(table.pin(mac(1), 3));
        assert_eq!(table.learn(mac(1), 4, 20, u32::MAX), Learnt::Refused);
        table.forget_port(3);
        assert_eq!(table.lookup(mac(1), u32::MAX), Some(3));
    }

    #[test]
    fn group_and_zero_addresses_are_not_learnt() {
        let mut table = Residency::new();
        let group = Mac::from_octets([1, 0, 0x5e, 0, 0, 1]);
        assert_eq!(table.learn(group, 1, 0, u32::MAX), Learnt::Refused);
        assert_eq!(
            table.learn(Mac::from_octets([0; 6]), 1, 0, u32::MAX),
            Learnt::Refused
        );
        assert_eq!(table.residents(), 0);
    }

    #[test]
    fn a_port_at_its_limit_learns_no_more() {
        let mut table = Residency::new();
        assert_eq!(table.learn(mac(1), 3, 0, 1), Learnt::New);
        assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Refused);
        assert_eq!(table.learn(mac(1), 3, 0, 1), Learnt::Known);
        assert_eq!(table.learn(mac(2), 4, 0, 1), Learnt::New);
        assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Refused);
        table.forget(mac(1));
        assert_eq!(table.learn(mac(2), 3, 0, 1), Learnt::Moved(4));
    }

    #[test]
    fn a_full_table_refuses_and_still_answers() {
        let mut table = Residency::new();
        for number in 0..u32::try_from(MAX_RESIDENTS).unwrap() {
            assert_eq!(table.learn(mac(number), 1, 0, u32::MAX), Learnt::New);
        }
        assert_eq!(table.learn(mac(u32::MAX), 1, 0, u32::MAX), Learnt::Refused);
        assert_eq!(table.lookup(mac(u32::MAX), 0), None);
        assert_eq!(table.lookup(mac(7), 0), Some(1));
    }

    #[test]
    fn ageing_visits_every_slot() {
        let mut table = Residency::new();
        for number in 0..1000 {
            table.learn(mac(number), 1, 0, u32::MAX);
        }
        assert_eq!((table.residents(), table.count(1)), (1000, 1000));
        for _ in 0..SLOTS / 1024 {
            table.age(AGEING + 1);
        }
        assert_eq!((table.residents(), table.count(1)), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Learn(u32, u16),
        Pin(u32, u16),
        Forget(u32),
        ForgetPort(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let address = 0_u32..60;
        let port = 0_u16..4;
        prop_oneof![
            (address.clone(), port.clone()).prop_map(|(m, p)| Step::Learn(m, p)),
            (address.clone(), port.clone()).prop_map(|(m, p)| Step::Pin(m, p)),
            address.prop_map(Step::Forget),
            port.prop_map(Step::ForgetPort),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..200), key: u64) {
            let mut table = Residency::new();
            // A poor key makes long probe runs, where mistakes would show.
            table.key = (key % 64) | 1;
            let mut model: HashMap<u32, (u16, bool)> = HashMap::new();
            for step in steps {
                match step {
                    Step::Learn(m, p) => {
                        table.learn(mac(m), p, 0, u32::MAX);
                        let entry = model.entry(m).or_insert((p, false));
                        if !entry.1 { entry.0 = p; }
                    }
                    Step::Pin(m, p) => {
                        table.pin(mac(m), p);
                        model.insert(m, (p, true));
                    }
                    Step::Forget(m) => {
                        table.forget(mac(m));
                        model.remove(&m);
                    }
                    Step::ForgetPort(p) => {
                        table.forget_port(p);
                        model.retain(|_, (port, pinned)| *port != p || *pinned);
                    }
                }
                prop_assert_eq!(table.residents(), model.len());
                for port in 0..4 {
                    let count = model.values().filter(|entry| entry.0 == port).count();
                    prop_assert_eq!(table.count(port) as usize, count);
                }
                for m in 0..60 {
                    prop_assert_eq!(table.lookup(mac(m), 0), model.get(&m).map(|entry| entry.0));
                }
            }
        }
    }
}
