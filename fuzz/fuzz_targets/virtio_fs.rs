//! A guest that sends arbitrary requests to its space: FUSE requests with a few bytes changed, and random bytes.
//!
//! An input is a list of requests. Each has an opcode (one byte), a target (one byte: the inode in the low half, the name in
//! the high half), and the number of changed bytes (one byte), each by its offset and value (two bytes). Opcode 255 sends raw
//! bytes instead: its second byte is the size of the response buffer in units of 64 bytes, and its third byte is the number
//! of bytes that follow.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use memory_plane::SpaceState;
use memory_plane::device::test_driver::TestDriver;

const SLOT: u32 = 4096;
const SLOTS: u32 = 8;

/// Bytes of `struct fuse_in_header`.
const HEADER: usize = 40;

/// Returns a valid body of a request with this opcode (include/uapi/linux/fuse.h).
fn body(code: u32, name: &[u8]) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let named = |words: &[u32]| {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        words
            .chain(name.iter().copied())
            .chain([0])
            .collect::<Vec<u8>>()
    };
    match code {
        // LOOKUP, UNLINK, RMDIR.
        1 | 10 | 11 => named(&[]),
        // FORGET and BATCH_FORGET.
        2 => words(&[1, 0]),
        42 => words(&[1, 0, 2, 0, 1, 0]),
        // Get attributes, and set them (size, time, mode).
        3 => words(&[0; 4]),
        4 => words(&[
            0x69, 0, 0, 0, 5000, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0o644, 0, 0, 0, 0,
        ]),
        // Create a directory, a file.
        9 => named(&[0o755, 0]),
        35 => named(&[2, 0o644, 0, 0]),
        // RENAME, RENAME2.
        12 => [named(&[1, 0]), b"z\0".to_vec()].concat(),
        45 => [named(&[1, 0, 0, 0]), b"z\0".to_vec()].concat(),
        // OPEN, OPENDIR; READ, READDIR, READDIRPLUS; WRITE.
        14 | 27 => words(&[2, 0]),
        15 | 28 | 44 => words(&[0, 0, 0, 0, 4096, 0, 0, 0, 0, 0]),
        16 => [words(&[0, 0, 0, 0, 100, 0, 0, 0, 0, 0]), vec![7; 100]].concat(),
        // RELEASE, RELEASEDIR; FLUSH; FSYNC, FSYNCDIR; INIT; ACCESS.
        18 | 29 => words(&[0; 6]),
        25 => words(&[0; 6]),
        20 | 30 => words(&[0; 4]),
        26 => words(&[7, 31, 4096, 0]),
        34 => words(&[4, 0]),
        // FALLOCATE, LSEEK, COPY_FILE_RANGE.
        43 => words(&[0, 0, 0, 0, 10_000, 0, 0, 0]),
        46 => words(&[0, 0, 0, 0, 3, 0]),
        47 => words(&[0; 14]),
        _ => words(&[0; 10]),
    }
}

fn request(opcode: u8, target: u8) -> Vec<u8> {
    let code = u32::from(opcode % 64);
    let names: [&[u8]; 4] = [b"a", b"b", b"folder", b"a-name-that-is-longer"];
    let body = body(code, names[usize::from(target >> 4) % names.len()]);
    let length = u32::try_from(HEADER + body.len()).expect("it is short");
    let mut bytes = [length, code].map(u32::to_le_bytes).concat();
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(u64::from(target & 15).to_le_bytes());
    bytes.resize(HEADER, 0);
    [bytes, body].concat()
}

fuzz_target!(|data: &[u8]| {
    let state = SpaceState::new("fuzz", SLOT, SLOTS, SLOTS).expect("memory");
    let mut guest = TestDriver::new(&state).expect("a device");
    guest.request(&request(26, 0), 4096);
    let mut rest = data;
    while let Some(([opcode, target, changes], tail)) = rest.split_first_chunk::<3>() {
        rest = tail;
        if *opcode == u8::MAX {
            let (raw, tail) = rest.split_at(rest.len().min(usize::from(*changes)));
            rest = tail;
            guest.request(raw, usize::from(*target) * 64);
            continue;
        }
        let mut bytes = request(*opcode, *target);
        for _ in 0..changes % 8 {
            let Some(([at, value], tail)) = rest.split_first_chunk::<2>() else {
                break;
            };
            rest = tail;
            let at = usize::from(*at) % bytes.len();
            bytes[at] = *value;
        }
        guest.request(&bytes, 8192);
        check(&state);
    }
    drop(guest);
    // After the VM disconnects, only published files remain; unfinished files are removed.
    state.store().end_session();
    check(&state);
});

/// Checks that no more slots are in use than exist.
fn check(state: &Arc<SpaceState>) {
    let store = state.store();
    let slots = store.slots();
    assert!(slots.used() <= slots.max_slots());
    for (_, path) in store.published_files() {
        assert!(!path.is_empty());
    }
}
