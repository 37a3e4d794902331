//! Large messages that both sides copy.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::time::Duration;

use common::{Pair, both, bytes, filled, marked};
use message::limits::{PIECE, SHARED};
use message::{Code, Copies, Endpoint, Options, Pattern};

/// No operation takes this long; a longer wait is a hang.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// Lengths around pieces, and around the shortest message that both sides copy.
const LENGTHS: [usize; 7] = [
    SHARED as usize - 1,
    SHARED as usize,
    SHARED as usize + 1,
    3 * PIECE as usize,
    3 * PIECE as usize - 1,
    1_000_003,
    (4 << 20) + 5,
];

#[test]
fn the_receiver_copies_all_if_the_sender_does_not_poll() {
    let mut pair = Pair::new();
    let mut once = 0;
    for (seed, length) in LENGTHS.into_iter().enumerate() {
        for room in [length, length + 7, length - 100_000] {
            let sent = marked(length, seed);
            let memory = filled(&mut pair.a, pair.to_b, &sent);
            let request = pair.a.isend(pair.to_b, 1, memory).unwrap();
            let room = filled(&mut pair.b, pair.to_a, &vec![0xee; room]);
            let wanted = pair.b.irecv(Pattern::ANY, room).unwrap();
            let got = pair.b.wait(wanted, HANG).unwrap().unwrap();
            let taken = got.status.taken as usize;
            assert_eq!(taken, length.min(got.memory.length() as usize));
            let mut expected = sent[..taken].to_vec();
            expected.resize(got.memory.length() as usize, 0xee);
            assert!(bytes(&got.memory) == expected, "{length} bytes");
            let done = pair.finish_a(request);
            assert_eq!(done.status.taken, got.status.taken);
            assert!(bytes(&done.memory) == sent);
            once += 1;
        }
    }
    let copies = Copies {
        once,
        ..Copies::default()
    };
    assert_eq!(pair.b.copies(), copies);
    assert!(
        !pair.folder().join("heap").exists(),
        "no allocator of the board: each link has its own heap"
    );
}

#[test]
fn two_polling_endpoints_copy_together_and_nothing_is_missing() {
    let mut pair = Pair::new();
    let (to_b, mut a) = (pair.to_b, pair.a);
    let lengths = || (0..).map(|turn: usize| (turn, 1_000_003 + turn % 50 * 40_961));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for (turn, length) in lengths() {
                let memory = filled(&mut a, to_b, &marked(length, turn));
                let request = a.isend(to_b, turn as u64, memory).unwrap();
                let sent = a.wait(request, HANG).unwrap().unwrap();
                match sent.status.code {
                    Code::Success => assert!(bytes(&sent.memory) == marked(length, turn)),
                    // The receiver has ended.
                    code => return assert_eq!(code, Code::Closed),
                }
            }
        });
        for (turn, length) in lengths() {
            let room = filled(&mut pair.b, pair.to_a, &vec![0; length]);
            let request = pair.b.irecv(Pattern::exactly(turn as u64), room).unwrap();
            let got = pair.b.wait(request, HANG).unwrap().unwrap();
            assert_eq!(got.status.code, Code::Success);
            assert!(bytes(&got.memory) == marked(length, turn), "{turn}");
            let Copies { once, shared, .. } = pair.b.copies();
            assert_eq!(once, turn as u64 + 1);
            if turn >= 50 && shared >= 10 {
                break;
            }
        }
        drop(pair.b);
    });
}

#[test]
fn a_receiver_that_ends_leaves_the_sender_its_memory() {
    let mut pair = Pair::new();
    let sent = marked(1_000_003, 1);
    let memory = filled(&mut pair.a, pair.to_b, &sent);
    let request = pair.a.isend(pair.to_b, 1, memory).unwrap();
    let board = pair.board();
    drop(pair.b);
    let ended = pair.a.wait(request, HANG).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Closed);
    // Memory of a link that has ended can be used like any other.
    let mut other = Endpoint::open(&board, &Options::default()).unwrap();
    let request = pair.a.iconnect(other.address(), 0, 0).unwrap();
    let to_other = both(&mut pair.a, &mut other, request).status.peer.unwrap();
    let request = pair.a.isend(to_other, 1, ended.memory).unwrap();
    let wanted = other.irecv(Pattern::ANY, vec![0; 1_000_003]).unwrap();
    let got = both(&mut other, &mut pair.a, wanted);
    assert!(got.memory.bytes() == sent);
    assert_eq!(
        both(&mut pair.a, &mut other, request).status.code,
        Code::Success
    );
    assert_eq!(other.copies().streamed, 1);
}
