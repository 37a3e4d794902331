//! Two endpoints on one thread.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests; every binary uses its own part of this"
)]

pub mod scripted_peer;

use std::path::Path;
use std::time::{Duration, Instant};

use message::{Board, Completion, Endpoint, Memory, Options, Peer, Request};

/// No operation takes this long; a longer wait is a hang.
const HANG: Duration = Duration::from_secs(60);

/// Polls between two reads of the clock.
const POLLS_PER_CLOCK_READ: u32 = 1024;

/// Two connected endpoints, and each one's peer.
pub struct Pair {
    pub a: Endpoint,
    pub b: Endpoint,
    /// B as A's peer.
    pub to_b: Peer,
    /// A as B's peer.
    pub to_a: Peer,
    folder: tempfile::TempDir,
}

impl Pair {
    pub fn new() -> Self {
        Self::with(&Options::default())
    }

    pub fn with(options: &Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let mut a = Endpoint::open(&board, options).unwrap();
        let mut b = Endpoint::open(&board, options).unwrap();
        let request = a.iconnect(b.address(), options.key, 0).unwrap();
        let to_b = both(&mut a, &mut b, request).status.peer.unwrap();
        let to_a = b.connect(a.address(), options.key, None).unwrap();
        Self {
            a,
            b,
            to_b,
            to_a,
            folder,
        }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn board(&self) -> Board {
        Board::open(self.folder.path()).unwrap()
    }

    /// Runs both until A's request ends.
    pub fn finish_a(&mut self, request: Request) -> Completion {
        both(&mut self.a, &mut self.b, request)
    }

    /// Runs both until B's request ends.
    pub fn finish_b(&mut self, request: Request) -> Completion {
        both(&mut self.b, &mut self.a, request)
    }

    /// Runs both until neither has anything to do.
    pub fn run_until_idle(&mut self) {
        for _ in 0..3000 {
            self.a.progress();
            self.b.progress();
        }
    }
}

/// Runs both until the first one's request ends. Other programs may have to run meanwhile on this
/// processor, so the limit is a time and not a number of polls.
pub fn both(first: &mut Endpoint, second: &mut Endpoint, request: Request) -> Completion {
    let start = Instant::now();
    while start.elapsed() < HANG {
        for _ in 0..POLLS_PER_CLOCK_READ {
            if let Some(completion) = first.test(request).unwrap() {
                return completion;
            }
            second.progress();
        }
    }
    panic!("the request does not end");
}

/// Bytes whose value depends on their position.
pub fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let byte = |at: usize| (at as u64).wrapping_mul(31).wrapping_add(seed) as u8;
    (0..length).map(byte).collect()
}

/// Bytes whose value depends on their position: no two pieces are alike.
pub fn marked(length: usize, seed: usize) -> Vec<u8> {
    let byte = |at: usize| ((at ^ at >> 8 ^ at >> 16) * 31 + seed) as u8;
    (0..length).map(byte).collect()
}

/// Memory with these bytes, allocated for the peer.
pub fn filled(endpoint: &mut Endpoint, peer: Peer, bytes: &[u8]) -> Memory {
    let mut memory = endpoint.allocate_for(peer, bytes.len()).unwrap();
    assert_eq!(memory.put(0, bytes), bytes.len() as u64);
    memory
}

/// Returns all bytes of memory of any kind.
pub fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.length() as usize];
    assert_eq!(memory.get(0, &mut bytes), memory.length());
    bytes
}
