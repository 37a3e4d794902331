//! Who lives where: the table from MAC address to port, asked once per frame.
//!
//! Open addressing with linear probing, in one allocation made at the start, at most half full.
//! The hash is keyed, so a guest cannot aim at one slot. Entries are learnt from the frames a port
//! sends and forgotten when not heard of for [`AGEING`] seconds, or pinned by the supervisor and
//! kept.

use std::hash::{BuildHasher, RandomState};

use crate::limits::{AGEING, MAX_RESIDENTS};
use crate::mac::Mac;

/// Slots; twice the residents, rounded up to a power of two.
const SLOTS: usize = (2 * MAX_RESIDENTS).next_power_of_two();
const SHIFT: u32 = 64 - SLOTS.trailing_zeros();

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The address, or 0 for a free slot: no station has the address zero.
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
        Self {
            slots: vec![Entry::default(); SLOTS].into_boxed_slice(),
            residents: 0,
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

    /// The port an address lives at, if that is known.
    #[inline]
    #[must_use]
    pub fn lookup(&self, mac: Mac, now: u32) -> Option<u16> {
        let (_, entry) = self.find(mac.bits())?;
        (entry.mac != 0 && !entry.expired(now)).then_some(entry.port)
    }

    /// Note that an address sent something from a port. `may_add` says whether the port may add
    /// an address the table has not.
    #[inline]
    pub fn learn(&mut self, mac: Mac, port: u16, now: u32, may_add: bool) -> Learnt {
        if mac.is_group() || mac.bits() == 0 {
            return Learnt::Refused;
        }
        let Some((slot, entry)) = self.find(mac.bits()) else {
            return Learnt::Refused;
        };
        let learnt = if entry.mac == 0 {
            if !may_add || self.residents >= MAX_RESIDENTS {
                return Learnt::Refused;
            }
            self.residents += 1;
            Learnt::New
        } else if entry.pinned {
            return if entry.port == port {
                Learnt::Known
            } else {
                Learnt::Refused
            };
        } else if entry.port == port {
            Learnt::Known
        } else {
            Learnt::Moved(entry.port)
        };
        self.put(
            slot,
            Entry {
                mac: mac.bits(),
                seen: now,
                port,
                pinned: false,
            },
        );
        learnt
    }

    /// Pin an address to a port; false when the table is full.
    pub fn pin(&mut self, mac: Mac, port: u16) -> bool {
        let Some((slot, entry)) = self.find(mac.bits()) else {
            return false;
        };
        if entry.mac == 0 {
            if self.residents >= MAX_RESIDENTS || mac.bits() == 0 {
                return false;
            }
            self.residents += 1;
        }
        self.put(
            slot,
            Entry {
                mac: mac.bits(),
                seen: 0,
                port,
                pinned: true,
            },
        );
        true
    }

    /// Forget an address, pinned or not.
    pub fn forget(&mut self, mac: Mac) {
        if let Some((slot, entry)) = self.find(mac.bits()) {
            if entry.mac != 0 {
                self.free(slot);
            }
        }
    }

    /// Forget what was learnt at a port; pinned addresses stay.
    pub fn forget_port(&mut self, port: u16) {
        self.forget_where(
            0,
            SLOTS,
            |entry| entry.port == port && !entry.pinned,
            |_| {},
        );
    }

    /// Look at the next few slots and forget what is too old there; calls `gone` with the port
    /// of each. Called now and then, it keeps the table clean without ever stalling a frame.
    pub fn age(&mut self, now: u32, gone: impl FnMut(u16)) {
        const STEP: usize = 1024;
        let from = self.sweep;
        self.sweep = (from + STEP) % SLOTS;
        self.forget_where(from, STEP, |entry| entry.expired(now), gone);
    }

    /// Addresses at a port, pinned or learnt.
    #[must_use]
    pub fn count(&self, port: u16) -> usize {
        self.slots
            .iter()
            .filter(|entry| entry.mac != 0 && entry.port == port)
            .count()
    }

    fn forget_where(
        &mut self,
        from: usize,
        count: usize,
        condition: impl Fn(&Entry) -> bool,
        mut gone: impl FnMut(u16),
    ) {
        let mut slot = from;
        for _ in 0..count {
            // Freeing pulls a later entry into this slot: look again before going on.
            while let Some(entry) = self.slots.get(slot).copied() {
                if entry.mac == 0 || !condition(&entry) {
                    break;
                }
                self.free(slot);
                gone(entry.port);
            }
            slot = (slot + 1) % SLOTS;
        }
    }

    #[inline]
    fn put(&mut self, slot: usize, entry: Entry) {
        if let Some(place) = self.slots.get_mut(slot) {
            *place = entry;
        }
    }

    /// Free a slot and close the gap, so that every entry stays reachable from its home.
    fn free(&mut self, slot: usize) {
        self.residents -= 1;
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
        assert_eq!(table.learn(mac(1), 3, 10, true), Learnt::New);
        assert_eq!(table.lookup(mac(1), 10), Some(3));
        assert_eq!(table.learn(mac(1), 4, 20, true), Learnt::Moved(3));
        assert_eq!(table.lookup(mac(1), 20 + AGEING), Some(4));
        assert_eq!(table.lookup(mac(1), 21 + AGEING), None);
    }

    #[test]
    fn a_pinned_address_neither_moves_nor_ages() {
        let mut table = Residency::new();
        assert!(table.pin(mac(1), 3));
        assert_eq!(table.learn(mac(1), 4, 20, true), Learnt::Refused);
        table.forget_port(3);
        assert_eq!(table.lookup(mac(1), u32::MAX), Some(3));
    }

    #[test]
    fn group_and_zero_addresses_are_not_learnt() {
        let mut table = Residency::new();
        let group = Mac::from_octets([1, 0, 0x5e, 0, 0, 1]);
        assert_eq!(table.learn(group, 1, 0, true), Learnt::Refused);
        assert_eq!(
            table.learn(Mac::from_octets([0; 6]), 1, 0, true),
            Learnt::Refused
        );
        assert_eq!(table.residents(), 0);
    }

    #[test]
    fn a_full_table_refuses_and_still_answers() {
        let mut table = Residency::new();
        for number in 0..u32::try_from(MAX_RESIDENTS).unwrap() {
            assert_eq!(table.learn(mac(number), 1, 0, true), Learnt::New);
        }
        assert_eq!(table.learn(mac(u32::MAX), 1, 0, true), Learnt::Refused);
        assert_eq!(table.lookup(mac(u32::MAX), 0), None);
        assert_eq!(table.lookup(mac(7), 0), Some(1));
    }

    #[test]
    fn ageing_visits_every_slot() {
        let mut table = Residency::new();
        for number in 0..1000 {
            table.learn(mac(number), 1, 0, true);
        }
        let mut gone = 0;
        for _ in 0..SLOTS / 1024 {
            table.age(AGEING + 1, |_| gone += 1);
        }
        assert_eq!((gone, table.residents()), (1000, 0));
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
                        table.learn(mac(m), p, 0, true);
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
                for m in 0..60 {
                    prop_assert_eq!(table.lookup(mac(m), 0), model.get(&m).map(|entry| entry.0));
                }
            }
        }
    }
}
