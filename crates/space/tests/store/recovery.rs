//! Stores that a new process opens after the previous one was killed.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use space::store::{Attributes, Lookup, MAX_NODES, ROOT, Store};

use crate::fakes::*;

/// Returns the content of each published file of two directories.
fn published_contents(store: &Store, memory: &FakeMemory) -> BTreeMap<&'static str, Vec<u8>> {
    let mut published_contents = BTreeMap::new();
    for path in ["a", "b", "d/a", "d/b"] {
        if let Lookup::Object(object) = store.find(path.split('/').map(str::as_bytes)) {
            published_contents.insert(path, memory.read_all(&object.content));
        }
    }
    published_contents
}

/// After a kill between any two writes, the next process has each file as it was before or after the current step. A file
/// that was being changed in place may be missing. No file is damaged.
#[test]
fn a_store_reopened_after_any_ledger_write_has_every_acknowledged_file() {
    let (mut store, memory, ledger) = store_with_ledger(MAX_SLOTS);
    *ledger.memory.lock().unwrap() = Some(Arc::clone(&memory));
    let directory = store
        .create(ROOT, b"d", true, Attributes::default())
        .unwrap();
    let replace_file = |store: &mut Store, directory: u64, name: &[u8], bytes: &[u8]| {
        let file = store.look_up(directory, name).unwrap_or_else(|_| {
            let attributes = Attributes::default();
            store.create(directory, name, false, attributes).unwrap()
        });
        store.open(file, true).unwrap();
        store.truncate(file, 0, now(1)).unwrap();
        write(store, &memory, file, 0, bytes).unwrap();
        store.close(file, true);
    };
    type Work<'w> = &'w dyn Fn(&mut Store);
    let steps: [(Option<&str>, Work<'_>); 7] = [
        (None, &|store| replace_file(store, ROOT, b"a", &[1; 20])),
        (None, &|store| replace_file(store, directory, b"b", &[2; 9])),
        // The replacement is atomic: a file of this name always exists.
        (None, &|store| {
            store
                .rename((directory, b"b"), (ROOT, b"a"), false)
                .unwrap();
        }),
        (None, &|store| {
            replace_file(store, directory, b"a", &[3; 30]);
        }),
        (Some("d/a"), &|store| {
            replace_file(store, directory, b"a", &[4; 12]);
        }),
        (Some("a"), &|store| {
            let file = store.look_up(ROOT, b"a").unwrap();
            store.truncate(file, 4, now(2)).unwrap();
        }),
        (None, &|store| store.remove(ROOT, b"a", false).unwrap()),
    ];
    for (number, (changed, step)) in steps.into_iter().enumerate() {
        let before = published_contents(&store, &memory);
        ledger.history.lock().unwrap().clear();
        step(&mut store);
        let after = published_contents(&store, &memory);
        let history = std::mem::take(&mut *ledger.history.lock().unwrap());
        assert!(!history.is_empty());
        for (written, bytes) in history {
            let (reopened, memory, _) = reopen(&written, &bytes);
            let mut found = published_contents(&reopened, &memory);
            for path in ["a", "b", "d/a", "d/b"] {
                let found = found.remove(path);
                let (before, after) = (before.get(path), after.get(path));
                let unchanged = found.as_ref() == before || found.as_ref() == after;
                let gone = found.is_none() && changed == Some(path);
                assert!(
                    unchanged || gone,
                    "step {number}, {path}: {found:?}, not {before:?} nor {after:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn a_ledger_of_random_records_opens_to_a_consistent_store(
        records in prop::collection::vec((0_u32..6, 0_u8..4, 0_u8..3, 0_u32..6, 0_u64..4, 0_u64..200), 0..12),
        slots in prop::collection::vec((0_u64..MAX_SLOTS.into(), 0_u64..4, 0_u64..6, 0_u64..20), 0..12),
    ) {
        let mut written = Written::new();
        for (record, kind, length, parent, version, size) in records {
            let mut bytes = vec![0; 512];
            bytes[0] = kind;
            bytes[1] = length;
            bytes[28..32].copy_from_slice(&parent.to_le_bytes());
            bytes[32..40].copy_from_slice(&version.to_le_bytes());
            bytes[40..48].copy_from_slice(&size.to_le_bytes());
            bytes[64..67].copy_from_slice(b"ab/");
            written.insert(u64::from(record) * 512, bytes);
        }
        let start = 512 * MAX_NODES as u64;
        for (slot, version, index, valid) in slots {
            let bytes = [version, index, valid, 0].map(u64::to_le_bytes).concat();
            written.insert(start + 32 * slot, bytes);
        }
        let (mut store, memory, ledger) = reopen(&written, &[7; (SLOT * MAX_SLOTS) as usize]);
        prop_assert!(store.slots().used() <= MAX_SLOTS);
        // The store works, and the next process restores the same state from its ledger.
        let file = store.create(ROOT, b"new", false, Attributes::default()).unwrap();
        publish(&mut store, file);
        let written = ledger.written.lock().unwrap().clone();
        let bytes = memory.bytes.lock().unwrap().clone();
        let (reopened, _, _) = reopen(&written, &bytes);
        prop_assert_eq!(reopened.usage(), store.usage());
        prop_assert_eq!(reopened.slots().used(), store.slots().used());
    }
}
