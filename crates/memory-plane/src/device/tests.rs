//! Tests of drivers that offer too many chains, and of repeated connections of QEMU.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::test_driver::{ENTRIES, MAX_REQUEST, TestDriver};
use super::*;

const SLOT: u32 = 4096;

fn error(response: &[u8]) -> i32 {
    i32::from_le_bytes(*response[4..].first_chunk().unwrap())
}

/// Returns a FUSE_INIT request of version 7.31 without flags.
fn fuse_init() -> Vec<u8> {
    let body = [7_u32, 31, 4096, 0].map(u32::to_le_bytes).concat();
    request(26, 0, &body)
}

/// Returns a request: `struct fuse_in_header` and a body (include/uapi/linux/fuse.h).
fn request(code: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(40 + body.len()).unwrap().to_le_bytes());
    bytes.extend(code.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(node.to_le_bytes());
    bytes.extend([0; 16]);
    bytes.extend(body);
    bytes
}

/// Returns a FUSE_WRITE request of one slot's bytes: `struct fuse_write_in` and the bytes.
fn write(node: u64, handle: u64, at: u64) -> Vec<u8> {
    let head = [handle, at, u64::from(SLOT), 0, 0];
    let mut body = head.map(u64::to_le_bytes).concat();
    body.resize(body.len() + SLOT as usize, 7);
    request(16, node, &body)
}

#[test]
fn valid_and_malformed_requests_are_answered() {
    let state = SpaceState::new("test", 1 << 16, 4, 4).unwrap();
    let mut guest = TestDriver::new(&state).unwrap();
    let response = guest.request(&fuse_init(), 4096).unwrap();
    assert_eq!(error(&response), 0);
    assert!(response.len() > 16);
    // FUSE_LOOKUP of a missing name.
    let response = guest.request(&request(1, 1, b"none\0"), 4096).unwrap();
    assert_eq!(error(&response), -libc::ENOENT);
    // FUSE_MKDIR, twice.
    let body = [&[0xff, 1, 0, 0, 0, 0, 0, 0], b"folder\0".as_slice()].concat();
    let mkdir = request(9, 1, &body);
    assert_eq!(error(&guest.request(&mkdir, 4096).unwrap()), 0);
    assert_eq!(error(&guest.request(&mkdir, 4096).unwrap()), -libc::EEXIST);
    // A request that is too short for its header.
    assert_eq!(guest.request(&[1, 2, 3], 4096), Some(Vec::new()));
    assert_eq!(guest.request(&vec![0; MAX_REQUEST + 1], 4096), None);
}

#[test]
fn virtio_2_7_no_more_chains_wait_than_the_queue_has_entries() {
    // Two slots may be in use, so a write that needs a third one waits for more credit.
    let state = SpaceState::new("test", SLOT, 2, 64).unwrap();
    let mut guest = TestDriver::new(&state).unwrap();
    guest.request(&fuse_init(), 4096).unwrap();
    // FUSE_CREATE answers `struct fuse_entry_out` (128 bytes), then `struct fuse_open_out`.
    let mut create = |name: &[u8]| {
        let words = [2_u32, 0o644, 0, 0].map(u32::to_le_bytes).concat();
        let body = [words, name.to_vec()].concat();
        let response = guest.request(&request(35, 1, &body), 4096).unwrap();
        assert_eq!(error(&response), 0);
        let word = |at: usize| u64::from_le_bytes(*response[16 + at..].first_chunk().unwrap());
        (word(0), word(128))
    };
    let (other, other_handle) = create(b"other\0");
    let (node, handle) = create(b"f\0");
    for number in 0..2 {
        let request = write(other, other_handle, number * u64::from(SLOT));
        assert_eq!(error(&guest.request(&request, 4096).unwrap()), 0);
    }
    // The space is full, so all further writes wait.
    let before = guest.used_index();
    for head in (0..ENTRIES).step_by(2) {
        guest.chain(head, &write(node, handle, 0), 4096).unwrap();
    }
    for round in 0..1000 {
        for head in (0..ENTRIES).step_by(2) {
            guest.offer(head).unwrap();
        }
        guest.kick();
        let waiting = guest.device.waiting.len();
        assert!(
            waiting <= usize::from(ENTRIES),
            "{waiting} in round {round}"
        );
    }
    assert_eq!(guest.device.waiting.len(), usize::from(ENTRIES / 2));
    assert_eq!(guest.used_index(), before);
    let nonsense = state.figures().invalid_requests;
    assert!(
        nonsense >= 1000,
        "only {nonsense} chains were counted as offered twice"
    );
}

/// Returns the number of open descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Other tests of this process open descriptors, too, so the test checks only that not every QEMU adds one.
#[test]
fn connections_of_qemu_leak_no_descriptor() {
    const QEMUS: usize = 500;
    let state = SpaceState::new("test", SLOT, 2, 2).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let before = descriptors();
    for number in 0..QEMUS {
        let mut qemu = UnixStream::connect(&path).unwrap();
        // VHOST_USER_SET_OWNER, the first message of QEMU. Every other connection also sends half of a second message.
        qemu.write_all(&[3_u32, 1, 0].map(u32::to_le_bytes).concat())
            .unwrap();
        if number % 2 == 0 {
            qemu.write_all(&[1; 5]).unwrap();
        }
        drop(qemu);
        serve_vm(&state, &listener).unwrap();
    }
    let after = descriptors();
    assert!(
        after < before + QEMUS / 4,
        "{before} descriptors, then {after}"
    );
}
