//! Operations on a space that several tests share.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use memory_plane::SpaceState;
use space::store::{Attributes, ROOT};

pub(crate) const SLOT: u32 = 64 << 10;

/// Writes to a file in the root directory, which stays open for writing; returns its inode number.
pub(crate) fn write(state: &SpaceState, name: &str, at: u64, bytes: &[u8]) -> u64 {
    let mut store = state.store();
    let found = store.look_up(ROOT, name.as_bytes());
    let inode = found.unwrap_or_else(|_| {
        store
            .create(ROOT, name.as_bytes(), false, Attributes::default())
            .unwrap()
    });
    store.open(inode, true).unwrap();
    let now = Duration::from_secs(1_000_000_000);
    let ranges = store.write(inode, at, bytes.len() as u64, now);
    let mut remaining = bytes;
    for (offset, length) in ranges.unwrap() {
        let (chunk, rest) = remaining.split_at(length as usize);
        state
            .slot_file()
            .file()
            .write_all_at(chunk, offset)
            .unwrap();
        remaining = rest;
    }
    inode
}

/// Writes a file and closes it, so that it is published.
pub(crate) fn publish(state: &SpaceState, name: &str, bytes: &[u8]) -> u64 {
    let inode = write(state, name, 0, bytes);
    state.store().close(inode, true);
    state.note_change();
    inode
}

pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251) as u8).collect()
}
