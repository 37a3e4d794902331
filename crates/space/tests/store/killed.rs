//! Stores whose process was killed.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use space::store::{Attributes, Found, MAX_NODES, ROOT, Store};

use crate::fakes::*;

/// What each file of two folders is to clients.
fn seen(store: &Store, ram: &Ram) -> BTreeMap<&'static str, Vec<u8>> {
    let mut seen = BTreeMap::new();
    for path in ["a", "b", "d/a", "d/b"] {
        if let Found::Object(object) = store.find(path.split('/').map(str::as_bytes)) {
            seen.insert(path, ram.all_of(&object.content));
        }
    }
    seen
}

/// Killed between any two writes, the next process has each file as it was before the step under way or as
/// it is after; one that was being changed in place may be gone, and none is damaged.
#[test]
fn a_process_that_is_killed_at_any_point_leaves_what_was_acknowledged() {
    let (mut store, ram, notes) = store_with_notes(MOST);
    *notes.ram.lock().unwrap() = Some(Arc::clone(&ram));
    let folder = store.make(ROOT, b"d", true, Attributes::default()).unwrap();
    let put = |store: &mut Store, folder: u64, name: &[u8], bytes: &[u8]| {
        let file = store.look_up(folder, name).unwrap_or_else(|_| {
            let attributes = Attributes::default();
            store.make(folder, name, false, attributes).unwrap()
        });
        store.open(file, true).unwrap();
        store.truncate(file, 0, now(1)).unwrap();
        write(store, &ram, file, 0, bytes).unwrap();
        store.close(file, true);
    };
    type Work<'w> = &'w dyn Fn(&mut Store);
    let steps: [(Option<&str>, Work<'_>); 7] = [
        (None, &|store| put(store, ROOT, b"a", &[1; 20])),
        (None, &|store| put(store, folder, b"b", &[2; 9])),
        // Replaced in one step: under this name there is always one.
        (None, &|store| {
            store.rename((folder, b"b"), (ROOT, b"a"), false).unwrap();
        }),
        (None, &|store| put(store, folder, b"a", &[3; 30])),
        (Some("d/a"), &|store| put(store, folder, b"a", &[4; 12])),
        (Some("a"), &|store| {
            let file = store.look_up(ROOT, b"a").unwrap();
            store.truncate(file, 4, now(2)).unwrap();
        }),
        (None, &|store| store.remove(ROOT, b"a", false).unwrap()),
    ];
    for (number, (changed, step)) in steps.into_iter().enumerate() {
        let before = seen(&store, &ram);
        notes.history.lock().unwrap().clear();
        step(&mut store);
        let after = seen(&store, &ram);
        let history = std::mem::take(&mut *notes.history.lock().unwrap());
        assert!(!history.is_empty());
        for (written, bytes) in history {
            let (again, ram, _) = killed(&written, &bytes);
            let mut has = seen(&again, &ram);
            for path in ["a", "b", "d/a", "d/b"] {
                let has = has.remove(path);
                let (before, after) = (before.get(path), after.get(path));
                let whole = has.as_ref() == before || has.as_ref() == after;
                let gone = has.is_none() && changed == Some(path);
                assert!(
                    whole || gone,
                    "step {number}, {path}: {has:?}, not {before:?} nor {after:?}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn a_ledger_of_nonsense_harms_nobody(
        records in prop::collection::vec((0_u32..6, 0_u8..4, 0_u8..3, 0_u32..6, 0_u64..4, 0_u64..200), 0..12),
        slots in prop::collection::vec((0_u64..MOST.into(), 0_u64..4, 0_u64..6, 0_u64..20), 0..12),
    ) {
        let mut written = Written::new();
        for (place, kind, length, parent, version, size) in records {
            let mut bytes = vec![0; 512];
            bytes[0] = kind;
            bytes[1] = length;
            bytes[28..32].copy_from_slice(&parent.to_le_bytes());
            bytes[32..40].copy_from_slice(&version.to_le_bytes());
            bytes[40..48].copy_from_slice(&size.to_le_bytes());
            bytes[64..67].copy_from_slice(b"ab/");
            written.insert(u64::from(place) * 512, bytes);
        }
        let start = 512 * MAX_NODES as u64;
        for (slot, version, index, valid) in slots {
            let bytes = [version, index, valid, 0].map(u64::to_le_bytes).concat();
            written.insert(start + 32 * slot, bytes);
        }
        let (mut store, ram, notes) = killed(&written, &[7; (SLOT * MOST) as usize]);
        prop_assert!(store.slots().used() <= MOST);
        // It works, and what it makes of the ledger is the same for the next process.
        let file = store.make(ROOT, b"new", false, Attributes::default()).unwrap();
        publish(&mut store, file);
        let written = notes.written.lock().unwrap().clone();
        let bytes = ram.bytes.lock().unwrap().clone();
        let (again, _, _) = killed(&written, &bytes);
        prop_assert_eq!(again.fill(), store.fill());
        prop_assert_eq!(again.slots().used(), store.slots().used());
    }
}
