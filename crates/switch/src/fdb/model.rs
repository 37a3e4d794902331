//! Loom models of the FDB's sequence lock, which check every reordering that the memory model allows.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::mac::Mac;

fn check(model: fn()) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn mac(number: u8) -> Mac {
    Mac::from_octets([0x52, 0x54, 0, 0, 0, number])
}

/// All addresses have the same home slot here, so removing one moves others to another slot.
#[test]
fn an_entry_that_changes_its_slot_is_always_found() {
    check(|| {
        let table = Arc::new(Fdb::new());
        assert!(table.pin(mac(1), 1, 0));
        assert!(table.pin(mac(2), 2, 0));
        let theirs = Arc::clone(&table);
        let other = thread::spawn(move || theirs.remove(mac(1)));
        assert_eq!(table.lookup(mac(2), 0), Some(2));
        assert_ne!(table.lookup(mac(1), 0), Some(2));
        other.join().unwrap();
        assert_eq!(table.lookup(mac(1), 0), None);
    });
}

/// A reader never combines an address with the port of another address that used the same slot.
#[test]
fn an_address_is_never_found_at_the_port_of_another() {
    check(|| {
        let table = Arc::new(Fdb::new());
        assert!(table.pin(mac(1), 1, 0));
        let theirs = Arc::clone(&table);
        let other = thread::spawn(move || {
            theirs.remove(mac(1));
            theirs.learn(mac(2), 2, 0, u32::MAX);
        });
        for (who, home) in [(1, 1), (2, 2)] {
            let found = table.lookup(mac(who), 0);
            assert!(found.is_none_or(|port| port == home), "{who} at {found:?}");
        }
        other.join().unwrap();
    });
}
