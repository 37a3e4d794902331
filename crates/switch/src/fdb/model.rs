//! The table's sequence lock, checked by loom under every reordering that memory allows.

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

/// All addresses have the same home here, so one that is forgotten makes others move.
#[test]
fn who_moves_up_is_found_all_the_time() {
    check(|| {
        let table = Arc::new(Fdb::new());
        assert!(table.pin(mac(1), 1));
        assert!(table.pin(mac(2), 2));
        let theirs = Arc::clone(&table);
        let other = thread::spawn(move || theirs.forget(mac(1)));
        assert_eq!(table.lookup(mac(2), 0), Some(2));
        assert_ne!(table.lookup(mac(1), 0), Some(2));
        other.join().unwrap();
        assert_eq!(table.lookup(mac(1), 0), None);
    });
}

/// A place that is taken over by another address is never found with the old one's port.
#[test]
fn nobody_is_found_at_anothers_port() {
    check(|| {
        let table = Arc::new(Fdb::new());
        assert!(table.pin(mac(1), 1));
        let theirs = Arc::clone(&table);
        let other = thread::spawn(move || {
            theirs.forget(mac(1));
            theirs.learn(mac(2), 2, 0, u32::MAX);
        });
        for (who, home) in [(1, 1), (2, 2)] {
            let found = table.lookup(mac(who), 0);
            assert!(found.is_none_or(|port| port == home), "{who} at {found:?}");
        }
        other.join().unwrap();
    });
}
