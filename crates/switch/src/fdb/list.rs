//! A list of the FDB's entries, for people.
//!
//! The list has pages, so that a large table delays no frame for long. An entry that changes its slot between two
//! pages may be in both of them, or in none.

use super::{Bookkeeping, Fdb, FdbKey, SLOTS};

/// The most slots that one page covers.
const SLOTS_PER_PAGE: usize = 16_384;

/// An entry of the FDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// The address, in its VLAN.
    pub key: FdbKey,
    /// The port to which it leads.
    pub port: u16,
    /// The supervisor pinned it.
    pub pinned: bool,
    /// Seconds for which it has led to this port.
    pub age: u32,
    /// Seconds since the address last sent a frame; 0 for a pinned entry.
    pub idle: u32,
}

impl Bookkeeping {
    pub(super) fn since(&self, slot: usize) -> u32 {
        self.since.get(slot).copied().unwrap_or_default()
    }

    pub(super) fn set_since(&mut self, slot: usize, now: u32) {
        if let Some(since) = self.since.get_mut(slot) {
            *since = now;
        }
    }
}

impl Fdb {
    /// Returns at most `most` entries from slot `from` on, and the slot at which the next page begins; `None` at the end
    /// of the table.
    #[must_use]
    pub fn list(&self, from: usize, most: usize, now: u32) -> (Vec<ListedEntry>, Option<usize>) {
        let bookkeeping = self.bookkeeping();
        let mut listed = Vec::new();
        let end = from.saturating_add(SLOTS_PER_PAGE).min(SLOTS);
        for slot in from..end {
            if listed.len() >= most {
                return (listed, Some(slot));
            }
            let entry = self.entry(slot);
            if entry.mac == 0 || entry.expired(now) {
                continue;
            }
            let idle = now.wrapping_sub(entry.seen);
            listed.push(ListedEntry {
                key: FdbKey::of_bits(entry.mac),
                port: entry.port,
                pinned: entry.pinned,
                age: now.saturating_sub(bookkeeping.since(slot)),
                idle: if entry.pinned { 0 } else { idle },
            });
        }
        (listed, (end < SLOTS).then_some(end))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::limits::AGEING;
    use crate::mac::Mac;

    fn mac(number: u32) -> Mac {
        let [a, b, c, d] = number.to_be_bytes();
        Mac::from_octets([0x52, 0x54, a, b, c, d])
    }

    fn all(table: &Fdb, most: usize, now: u32) -> Vec<ListedEntry> {
        let (mut listed, mut from) = (Vec::new(), Some(0));
        while let Some(slot) = from {
            let (page, next) = table.list(slot, most, now);
            assert!(page.len() <= most);
            listed.extend(page);
            from = next;
        }
        listed.sort_by_key(|entry| entry.key.mac().bits());
        listed
    }

    #[test]
    fn every_entry_is_listed_once_with_its_port_since_and_vlan() {
        let table = Fdb::new();
        for number in 1..=1000 {
            table.learn(FdbKey::new(mac(number), 7), 3, number, u32::MAX);
        }
        assert!(table.pin(mac(2000), 4, 100));
        // Removals move entries to other slots: what is known of them moves, too.
        for number in (1..=1000).step_by(2) {
            table.remove(FdbKey::new(mac(number), 7));
        }
        let now = 1000 + AGEING / 2;
        let listed = all(&table, 100, now);
        let kept = (2..=1000)
            .step_by(2)
            .filter(|number| now - number <= AGEING);
        assert_eq!(listed.len(), kept.clone().count() + 1);
        for (entry, number) in listed.iter().zip(kept) {
            assert_eq!(entry.key, FdbKey::new(mac(number), 7));
            assert_eq!((entry.port, entry.pinned), (3, false));
            assert_eq!((entry.age, entry.idle), (now - number, now - number));
        }
        let pinned = listed.last().unwrap();
        assert_eq!((pinned.port, pinned.pinned), (4, true));
        assert_eq!((pinned.age, pinned.idle), (now - 100, 0));
    }

    #[test]
    fn the_age_begins_anew_at_another_port_and_after_ageing() {
        let table = Fdb::new();
        let of = |now| {
            let listed = all(&table, 10, now);
            (listed[0].port, listed[0].age, listed[0].idle)
        };
        table.learn(mac(1), 3, 10, u32::MAX);
        table.learn(mac(1), 3, 50, u32::MAX);
        assert_eq!(of(60), (3, 50, 10));
        table.learn(mac(1), 4, 70, u32::MAX);
        assert_eq!(of(75), (4, 5, 5));
        let later = 70 + AGEING + 1;
        assert!(all(&table, 10, later).is_empty());
        table.learn(mac(1), 4, later, u32::MAX);
        assert_eq!(of(later + 2), (4, 2, 2));
    }
}
