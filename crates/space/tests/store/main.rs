//! Tests the store against a simple model, with random operations of guests, clients and controllers.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking; its numbers are small"
)]

mod fakes;
mod recovery;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use fakes::*;
use proptest::prelude::*;
use space::store::{Attributes, Content, Extent, Lookup, MAX_NODES, ROOT, Store, StoreError};

#[derive(Clone, Debug)]
enum Step {
    Write { file: u8, at: u8, bytes: Vec<u8> },
    Truncate { file: u8, size: u8 },
    Publish(u8),
    Rename(u8, u8),
    Remove(u8),
    Open(u8),
    Close(usize),
    Send(u8),
    Sent(usize),
    Credit(u8),
    Trim,
    Abandon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let file = || b'a'..b'e';
    let step = prop_oneof![
        6 => (file(), 0_u8..60, prop::collection::vec(1_u8..200, 1..30))
            .prop_map(|(file, at, bytes)| Step::Write { file, at, bytes }),
        2 => (file(), 0_u8..100).prop_map(|(file, size)| Step::Truncate { file, size }),
        3 => file().prop_map(Step::Publish),
        1 => (file(), file()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => file().prop_map(Step::Remove),
        1 => file().prop_map(Step::Open),
        1 => (0_usize..4).prop_map(Step::Close),
        3 => file().prop_map(Step::Send),
        2 => (0_usize..4).prop_map(Step::Sent),
        1 => (0_u8..16).prop_map(Step::Credit),
        1 => Just(Step::Trim),
        1 => Just(Step::Abandon),
    ];
    prop::collection::vec(step, 1..80)
}

/// The expected state of a file.
#[derive(Clone, Default)]
struct ExpectedFile {
    bytes: Vec<u8>,
    published: bool,
}

/// Returns the number of distinct slots of these contents.
fn distinct_slots<'c>(contents: impl Iterator<Item = &'c Content>) -> usize {
    let extents = contents.flat_map(|content| content.read(u64::from(SLOT), 0, u64::MAX));
    let slots: std::collections::BTreeSet<_> = extents
        .filter_map(|extent| match extent {
            Extent::Bytes { at, .. } => Some(at / u64::from(SLOT)),
            Extent::Zeros { .. } => None,
        })
        .collect();
    slots.len()
}

proptest! {
    #[test]
    fn the_store_matches_a_model_and_leaks_no_slot(steps in steps()) {
        let (mut store, memory, ledger) = store_with_ledger(8);
        let mut expected: BTreeMap<u8, ExpectedFile> = BTreeMap::new();
        let mut sending: Vec<(space::store::Object, Vec<u8>)> = Vec::new();
        let mut open: Vec<u64> = Vec::new();
        for step in steps {
            let before = store.slots().used();
            match step {
                Step::Write { file, at, bytes } => {
                    let inode = store.look_up(ROOT, &[file]).or_else(|_| {
                        store.create(ROOT, &[file], false, Attributes::default())
                    }).unwrap();
                    let expected_file = expected.entry(file).or_default();
                    match write(&mut store, &memory, inode, u64::from(at), &bytes) {
                        Ok(()) => {
                            let (at, end) = (usize::from(at), usize::from(at) + bytes.len());
                            expected_file.bytes.resize(expected_file.bytes.len().max(end), 0);
                            expected_file.bytes[at..end].copy_from_slice(&bytes);
                            expected_file.published = false;
                        }
                        Err(StoreError::Full) => prop_assert_eq!(before, store.slots().used()),
                        Err(other) => prop_assert!(false, "{}", other),
                    }
                }
                Step::Truncate { file, size } => {
                    if let Ok(inode) = store.look_up(ROOT, &[file]) {
                        let done = store.truncate(inode, u64::from(size), now(2));
                        let fits = u32::from(size) <= SLOT * MAX_SLOTS;
                        prop_assert_eq!(done.is_ok(), fits);
                        if fits {
                            let expected_file = expected.get_mut(&file).unwrap();
                            expected_file.bytes.resize(usize::from(size), 0);
                            // No handle is open for writing, so the file is published again.
                            expected_file.published = true;
                        }
                    }
                }
                Step::Publish(file) => {
                    if let Ok(inode) = store.look_up(ROOT, &[file]) {
                        store.open(inode, true).unwrap();
                        store.close(inode, true);
                        expected.get_mut(&file).unwrap().published = true;
                    }
                }
                Step::Rename(from, to) => {
                    let done = store.rename((ROOT, &[from]), (ROOT, &[to]), false);
                    prop_assert_eq!(done.is_ok(), expected.contains_key(&from));
                    if let Some(expected_file) = expected.remove(&from) {
                        expected.insert(to, expected_file);
                    }
                }
                Step::Remove(file) => {
                    let done = store.remove(ROOT, &[file], false);
                    prop_assert_eq!(done.is_ok(), expected.remove(&file).is_some());
                }
                Step::Open(file) => {
                    if let Ok(inode) = store.look_up(ROOT, &[file]) {
                        store.open(inode, false).unwrap();
                        open.push(inode);
                    }
                }
                Step::Close(which) => {
                    if which < open.len() {
                        store.close(open.swap_remove(which), false);
                    }
                }
                Step::Send(file) => {
                    let found = object(&store, &[file]);
                    let expected_file = expected.get(&file).filter(|expected_file| expected_file.published);
                    prop_assert_eq!(found.is_some(), expected_file.is_some());
                    if let (Some(found), Some(expected_file)) = (found, expected_file) {
                        sending.push((found, expected_file.bytes.clone()));
                    }
                }
                Step::Sent(which) => {
                    if which < sending.len() {
                        drop(sending.swap_remove(which));
                    }
                }
                Step::Credit(credit) => {
                    store.slots().resize(u32::from(credit), MAX_SLOTS);
                    let credit = u32::from(credit).min(MAX_SLOTS);
                    prop_assert!(store.slots().backed() <= credit.max(store.slots().used()));
                }
                Step::Trim => store.slots().trim(),
                Step::Abandon => {
                    store.end_session();
                    open.clear();
                    expected.retain(|_, expected_file| expected_file.published);
                }
            }
            let slots = store.slots();
            // The credit limits allocations, and does not reclaim slots in use.
            prop_assert!(slots.used() <= slots.credit().max(before));
            for (file, expected_file) in &expected {
                let node = store.node(store.look_up(ROOT, &[*file]).unwrap()).unwrap();
                prop_assert_eq!(&memory.read_all(node.content().unwrap()), &expected_file.bytes);
            }
            for (object, bytes) in &sending {
                prop_assert_eq!(&memory.read_all(&object.content), bytes);
            }
        }
        // A new process restores the published files and nothing else.
        let written = ledger.written.lock().unwrap().clone();
        let (reopened, reopened_memory, _) = reopen(&written, &memory.bytes.lock().unwrap());
        let mut contents = Vec::new();
        for (file, expected_file) in &expected {
            let found = object(&reopened, &[*file]);
            prop_assert_eq!(found.is_some(), expected_file.published);
            if let Some(found) = found {
                prop_assert_eq!(&reopened_memory.read_all(&found.content), &expected_file.bytes);
                contents.push(found.content);
            }
        }
        prop_assert_eq!(reopened.usage().unfinished, 0);
        prop_assert!(distinct_slots(contents.iter()) <= reopened.slots().used() as usize);
        drop((contents, reopened));

        // After the guest disconnects and all transmissions end, the published files and their slots remain.
        store.end_session();
        sending.clear();
        let left: Vec<_> = expected.iter().filter(|(_, expected_file)| expected_file.published).collect();
        let contents: Vec<_> = left
            .iter()
            .map(|(file, _)| object(&store, &[**file]).unwrap().content)
            .collect();
        let used = store.slots().used() as usize;
        prop_assert!(distinct_slots(contents.iter()) <= used);
        drop(contents);
        for (file, _) in left {
            store.remove(ROOT, &[*file], false).unwrap();
        }
        prop_assert_eq!(store.slots().used(), 0);
        prop_assert_eq!(store.usage().nodes, 1);
    }
}

#[test]
fn a_write_finds_the_space_full_until_the_last_object_is_dropped() {
    let (mut store, memory) = store(2);
    let one = store
        .create(ROOT, b"one", false, Attributes::default())
        .unwrap();
    write(&mut store, &memory, one, 0, &[1; 16]).unwrap();
    publish(&mut store, one);
    let sent = object(&store, b"one").unwrap();
    store.remove(ROOT, b"one", false).unwrap();
    let two = store
        .create(ROOT, b"two", false, Attributes::default())
        .unwrap();
    // The file is removed, but its object still uses the slots.
    let full = write(&mut store, &memory, two, 0, &[2]);
    assert!(matches!(full, Err(StoreError::Full)));
    assert_eq!(memory.read_all(&sent.content), [1; 16]);
    let before = memory.freed.load(Ordering::Relaxed);
    drop(sent);
    assert!(memory.freed.load(Ordering::Relaxed) > before);
    write(&mut store, &memory, two, 0, &[2]).unwrap();
}

#[test]
fn more_credit_notifies_waiting_writers() {
    let (mut store, memory) = store(0);
    let file = store
        .create(ROOT, b"f", false, Attributes::default())
        .unwrap();
    assert!(write(&mut store, &memory, file, 0, &[1]).is_err());
    assert_eq!(store.slots().resize(1, MAX_SLOTS), 1);
    assert_eq!(memory.freed.load(Ordering::Relaxed), 1);
    write(&mut store, &memory, file, 0, &[1]).unwrap();
}

#[test]
fn bytes_of_a_removed_file_are_not_visible_in_a_new_file() {
    let (mut store, memory) = store(1);
    let make = |store: &mut Store, name: &[u8]| {
        store
            .create(ROOT, name, false, Attributes::default())
            .unwrap()
    };
    let old = make(&mut store, b"old");
    write(&mut store, &memory, old, 0, &[7; 8]).unwrap();
    store.remove(ROOT, b"old", false).unwrap();
    let new = make(&mut store, b"new");
    write(&mut store, &memory, new, 5, &[1]).unwrap();
    store.truncate(new, 8, now(1)).unwrap();
    let content = store.node(new).unwrap().content().unwrap();
    assert_eq!(memory.read_all(content), [0, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn directory_operations_follow_posix_rules() {
    let (mut store, _) = store(1);
    let attributes = Attributes::default();
    let a = store.create(ROOT, b"a", true, attributes).unwrap();
    let b = store.create(a, b"b", true, attributes).unwrap();
    let into_itself = store.rename((ROOT, b"a"), (b, b"a"), false);
    assert!(matches!(into_itself, Err(StoreError::InvalidName)));
    assert!(matches!(
        store.remove(ROOT, b"a", true),
        Err(StoreError::NotEmpty)
    ));
    for name in [b"".as_slice(), b".", b"..", b"x/y", b"x\0", &[b'x'; 256]] {
        let made = store.create(ROOT, name, false, attributes);
        assert!(matches!(made, Err(StoreError::InvalidName)), "{name:?}");
    }
    // A directory that was removed while open accepts no entries, so no file can become unreachable in it.
    store.open(b, false).unwrap();
    store.remove(a, b"b", true).unwrap();
    let orphan = store.create(b, b"c", false, attributes);
    assert!(matches!(orphan, Err(StoreError::NotFound)));
    let moved = store.rename((ROOT, b"a"), (b, b"a"), false);
    assert!(matches!(moved, Err(StoreError::NotFound)));
    store.close(b, false);
    store.remove(ROOT, b"a", true).unwrap();
    assert_eq!(store.usage().nodes, 1);
}

#[test]
fn client_paths_have_no_dot_components() {
    let (mut store, _) = store(1);
    let directory = store
        .create(ROOT, b"in", true, Attributes::default())
        .unwrap();
    let file = store
        .create(directory, b"f", false, Attributes::default())
        .unwrap();
    assert!(matches!(
        store.find([b"in".as_slice(), b"f"]),
        Lookup::Unfinished
    ));
    publish(&mut store, file);
    let found = |path: &[&[u8]]| matches!(store.find(path.iter().copied()), Lookup::Object(_));
    assert!(found(&[b"in", b"f"]));
    assert!(!found(&[b"in"]) && !found(&[]) && !found(&[b"in", b"f", b"f"]));
    assert!(!found(&[b"in", b"..", b"in", b"f"]) && !found(&[b".", b"in", b"f"]));
}

#[test]
fn the_store_limits_the_number_of_files() {
    let (mut store, _) = store(1);
    let mut made = 0;
    let stopped = loop {
        let name = format!("{made}");
        match store.create(ROOT, name.as_bytes(), false, Attributes::default()) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(stopped, StoreError::TooMany));
    assert_eq!(made, MAX_NODES - 1);
    // A listing that continues after a removal returns each remaining entry once.
    let listed: Vec<u64> = store.list(ROOT, 0).unwrap().map(|(n, _)| n).collect();
    assert_eq!(listed.len(), made);
    let middle = listed[5_000];
    store.remove(ROOT, b"0", false).unwrap();
    assert_eq!(store.list(ROOT, middle).unwrap().count(), made - 5_001);
    // The guest can start a listing at any offset.
    assert_eq!(store.list(ROOT, u64::MAX).unwrap().count(), 0);
}

#[test]
fn the_last_close_by_a_writer_publishes_a_file() {
    let (mut store, memory) = store(2);
    let file = store
        .create(ROOT, b"f", false, Attributes::default())
        .unwrap();
    store.open(file, true).unwrap();
    store.open(file, true).unwrap();
    write(&mut store, &memory, file, 0, &[1]).unwrap();
    store.open(file, false).unwrap();
    store.close(file, false);
    store.close(file, true);
    assert!(object(&store, b"f").is_none());
    store.close(file, true);
    let first = object(&store, b"f").unwrap();
    // Opening for writing alone makes no new version; a write does.
    store.open(file, true).unwrap();
    store.close(file, true);
    assert_eq!(object(&store, b"f").unwrap().version, first.version);
    store.open(file, true).unwrap();
    write(&mut store, &memory, file, 0, &[2]).unwrap();
    assert!(object(&store, b"f").is_none());
    store.close(file, true);
    let second = object(&store, b"f").unwrap();
    assert_ne!(second.version, first.version);
    assert_eq!(memory.read_all(&first.content), [1]);
    assert_eq!(memory.read_all(&second.content), [2]);
}

#[test]
fn a_resize_keeps_slots_in_use_and_a_file_over_the_limit_is_refused() {
    let (mut store, memory) = store(8);
    let make = |store: &mut Store, name: &[u8]| {
        store
            .create(ROOT, name, false, Attributes::default())
            .unwrap()
    };
    let one = make(&mut store, b"one");
    write(&mut store, &memory, one, 0, &[1; 3 * SLOT as usize]).unwrap();
    assert_eq!(store.slots().resize(1, 4), 3);
    assert_eq!((store.slots().credit(), store.slots().backed()), (3, 3));
    let other = make(&mut store, b"other");
    let end = u64::from(SLOT) * 4;
    assert!(matches!(
        store.write(other, end - 1, 1, now(1)),
        Err(StoreError::Full)
    ));
    assert!(matches!(
        store.write(other, end, 1, now(1)),
        Err(StoreError::TooLarge)
    ));
    assert_eq!(store.slots().resize(8, 8), 8);
    store.write(other, end, 1, now(1)).unwrap();
}

#[test]
fn trim_releases_the_pages_of_slots_that_stayed_free() {
    let (store, _ram) = store(8);
    let slots = store.slots();
    drop(slots.allocate(6));
    // The slots were not free all the time since the last call.
    slots.trim();
    assert_eq!(slots.backed(), 6);
    drop(slots.allocate(2));
    slots.trim();
    assert_eq!(slots.backed(), 2);
    let allocated = slots.allocate(2);
    slots.trim();
    assert_eq!((slots.used(), slots.backed()), (2, 2));
    drop(allocated);
    slots.trim();
    assert_eq!(slots.backed(), 2);
    slots.trim();
    assert_eq!(slots.backed(), 0);
}

#[test]
fn slot_containing_keeps_a_slot_in_use() {
    let (store, _ram) = store(8);
    let slots = store.slots();
    let allocated = slots.allocate(2).unwrap();
    let last = allocated[1].start() + u64::from(SLOT) - 1;
    let slot = slots.slot_containing(last).unwrap();
    assert_eq!(slot.start(), allocated[1].start());
    drop(allocated);
    assert_eq!(slots.used(), 1);
    drop(slot);
    assert_eq!(slots.used(), 0);
    // A free slot, and an offset beyond all slots.
    assert!(slots.slot_containing(last).is_none());
    assert!(slots.slot_containing(8 * u64::from(SLOT)).is_none());
}

#[test]
fn windows_count_allocated_and_returned_slots() {
    let (mut store, memory) = store(8);
    let file = store
        .create(ROOT, b"f", false, Attributes::default())
        .unwrap();
    write(&mut store, &memory, file, 0, &[1; 3 * SLOT as usize]).unwrap();
    store.truncate(file, u64::from(SLOT), now(1)).unwrap();
    let window = store.slots().window();
    assert_eq!(
        (
            window.arrived,
            window.released,
            window.in_use,
            window.high_water
        ),
        (3, 2, 1, 3)
    );
    assert_eq!(store.slots().window().arrived, 0);
}
