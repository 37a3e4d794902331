//! The guarantees of MX for messages, for every protocol. A test `mx_6_N` shows those of section
//! 6.N.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::time::{Duration, Instant};

use common::{Pair, pattern};
use message::{Code, Contexts, Endpoint, Memory, MessageError, Options, Pattern, Segments};
use proptest::prelude::*;

/// No operation takes this long; a longer wait is a hang.
const HANG: Duration = Duration::from_secs(20);

/// Lengths around the bounds of the protocols.
const LENGTHS: [usize; 10] = [0, 1, 8, 47, 48, 49, 4096, 32_768, 32_769, 1_000_003];

#[test]
fn every_length_arrives_whole_sent_before_or_after_the_receive() {
    let mut pair = Pair::new();
    for (seed, &length) in LENGTHS.iter().enumerate() {
        for early in [true, false] {
            for synchronous in [true, false] {
                let bytes = pattern(length, seed as u64);
                let value = seed as u64;
                let mut posted = None;
                if early {
                    let memory = vec![0; length];
                    posted = Some(pair.b.irecv(Pattern::exactly(value), memory).unwrap());
                }
                let sent = match synchronous {
                    true => pair.a.issend(pair.to_b, value, bytes.clone()).unwrap(),
                    false => pair.a.isend(pair.to_b, value, bytes.clone()).unwrap(),
                };
                if !early {
                    pair.run_until_idle();
                    let probed = pair.b.iprobe(Pattern::ANY).unwrap();
                    assert_eq!((probed.length, probed.value), (length as u64, value));
                }
                let request =
                    posted.unwrap_or_else(|| pair.b.irecv(Pattern::ANY, vec![0; length]).unwrap());
                let got = pair.finish_b(request);
                assert_eq!(got.status.code, Code::Success);
                assert_eq!(got.status.peer, Some(pair.to_a));
                assert_eq!(got.status.value, value);
                assert_eq!(got.memory.bytes(), bytes, "{length} bytes");
                let sent = pair.finish_a(sent);
                assert_eq!(sent.status.code, Code::Success);
                assert_eq!(sent.status.taken, length as u64);
                assert_eq!(sent.status.peer, Some(pair.to_b));
            }
        }
    }
}

#[test]
fn a_large_message_from_the_heap_arrives_whole() {
    let mut pair = Pair::new();
    for length in [40_000, 4 << 20] {
        let mut buffer = pair.a.allocate(length).unwrap();
        buffer.copy_from_slice(&pattern(length, 3));
        let sent = pair.a.isend(pair.to_b, 1, buffer).unwrap();
        let target = pair.b.allocate(length).unwrap();
        let request = pair.b.irecv(Pattern::ANY, target).unwrap();
        let got = pair.finish_b(request);
        assert_eq!(got.memory.bytes(), pattern(length, 3));
        assert_eq!(pair.finish_a(sent).status.taken, length as u64);
    }
}

#[test]
fn mx_6_3_a_message_without_room_is_truncated_and_the_protocol_decides_who_learns_it() {
    let mut pair = Pair::new();
    for (length, synchronous) in [(8, false), (100, false), (100, true), (100_000, false)] {
        let bytes = pattern(length, 1);
        let sent = match synchronous {
            true => pair.a.issend(pair.to_b, 1, bytes.clone()).unwrap(),
            false => pair.a.isend(pair.to_b, 1, bytes.clone()).unwrap(),
        };
        let request = pair.b.irecv(Pattern::ANY, vec![0; 5]).unwrap();
        let got = pair.finish_b(request);
        assert_eq!(got.status.code, Code::Truncated);
        assert_eq!((got.status.length, got.status.taken), (length as u64, 5));
        assert_eq!(got.memory.bytes(), &bytes[..5]);
        let sent = pair.finish_a(sent).status;
        let told = synchronous || length > 32_768;
        let (code, taken) = match told {
            true => (Code::Truncated, 5),
            false => (Code::Success, length as u64),
        };
        assert_eq!((sent.code, sent.taken), (code, taken));
    }
    // No room at all.
    let sent = pair.a.isend(pair.to_b, 1, vec![1; 50_000]).unwrap();
    let request = pair.b.irecv(Pattern::ANY, Memory::Empty).unwrap();
    assert_eq!(pair.finish_b(request).status.code, Code::Truncated);
    assert_eq!(pair.finish_a(sent).status.code, Code::Truncated);
}

#[test]
fn mx_6_3_a_synchronous_send_ends_only_when_it_is_received() {
    let mut pair = Pair::new();
    let sent = pair.a.issend(pair.to_b, 1, vec![1; 8]).unwrap();
    pair.run_until_idle();
    assert!(pair.a.test(sent).unwrap().is_none());
    let request = pair.b.irecv(Pattern::ANY, vec![0; 8]).unwrap();
    assert_eq!(pair.finish_b(request).status.taken, 8);
    assert_eq!(pair.finish_a(sent).status.code, Code::Success);
}

/// A message of this test.
#[derive(Clone, Debug)]
struct Sent {
    length: usize,
    synchronous: bool,
    heap: bool,
    tag: u64,
}

fn sent() -> impl Strategy<Value = Sent> {
    let length = prop_oneof![
        4 => 0usize..64,
        3 => 64usize..40_000,
        1 => 40_000usize..200_000,
    ];
    (length, any::<bool>(), any::<bool>(), 0u64..3).prop_map(|(length, synchronous, heap, tag)| {
        Sent {
            length,
            synchronous,
            heap,
            tag,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Messages of any length and kind, received by tag: the messages of each tag arrive in the
    /// order in which they were sent, whatever the order of posting.
    #[test]
    fn mx_6_1_messages_of_a_pair_match_in_send_order(
        messages in prop::collection::vec(sent(), 1..60),
        ahead in 0usize..60,
    ) {
        let mut pair = Pair::new();
        let mut receives = Vec::new();
        let mut sends = Vec::new();
        let post = |pair: &mut Pair, message: &Sent| {
            let pattern = Pattern::new(message.tag << 32, 0xff << 32).unwrap();
            pair.b.irecv(pattern, vec![0; 200_000]).unwrap()
        };
        for message in messages.iter().take(ahead) {
            receives.push(post(&mut pair, message));
        }
        for (seed, message) in messages.iter().enumerate() {
            let bytes = pattern(message.length, seed as u64);
            let memory = match message.heap {
                true => {
                    let mut buffer = pair.a.allocate(message.length).unwrap();
                    buffer.copy_from_slice(&bytes);
                    Memory::Window(buffer)
                }
                false => Memory::Bytes(bytes),
            };
            let value = message.tag << 32 | seed as u64;
            sends.push(match message.synchronous {
                true => pair.a.issend(pair.to_b, value, memory).unwrap(),
                false => pair.a.isend(pair.to_b, value, memory).unwrap(),
            });
            if seed % 7 == 0 {
                pair.b.progress();
            }
        }
        for message in messages.iter().skip(ahead) {
            receives.push(post(&mut pair, message));
        }
        for (seed, (message, request)) in messages.iter().zip(receives).enumerate() {
            let got = pair.finish_b(request);
            // The n-th receive of a tag gets the n-th message of that tag, which is this one.
            prop_assert_eq!(got.status.value, message.tag << 32 | seed as u64);
            prop_assert_eq!(got.status.taken, message.length as u64);
            let taken = message.length;
            prop_assert_eq!(&got.memory.bytes()[..taken], &pattern(taken, seed as u64)[..]);
        }
        for request in sends {
            prop_assert_eq!(pair.finish_a(request).status.code, Code::Success);
        }
    }
}

#[test]
fn messages_beyond_the_lanes_capacity_wait_and_all_arrive() {
    let mut pair = Pair::new();
    let sends: Vec<_> = (0..2000u64)
        .map(|value| {
            let length = if value % 5 == 0 { 20_000 } else { 8 };
            let bytes = pattern(length, value);
            pair.a.isend(pair.to_b, value, bytes).unwrap()
        })
        .collect();
    for value in 0..2000u64 {
        let request = pair.b.irecv(Pattern::ANY, vec![0; 20_000]).unwrap();
        let got = pair.finish_b(request);
        assert_eq!(got.status.value, value);
        let taken = got.status.taken as usize;
        assert_eq!(got.memory.bytes()[..taken], pattern(taken, value));
    }
    for request in sends {
        assert_eq!(pair.finish_a(request).status.code, Code::Success);
    }
}

#[test]
fn a_flooding_peer_is_held_back_and_another_is_not() {
    let mut pair = Pair::new();
    let mut other = Endpoint::open(&pair.board(), &Options::default()).unwrap();
    let request = other.iconnect(pair.b.address(), 0, 0).unwrap();
    let to_b = common::both(&mut other, &mut pair.b, request).status.peer;
    // 24 MB of unexpected messages: more than the limit of 16 MiB.
    let sends: Vec<_> = (0..1200)
        .map(|_| pair.a.isend(pair.to_b, 1, vec![7; 20_000]).unwrap())
        .collect();
    pair.run_until_idle();
    assert!(pair.a.test(sends[1199]).unwrap().is_none(), "held back");
    let quick = other.isend(to_b.unwrap(), 2, vec![1; 8]).unwrap();
    let request = pair.b.irecv(Pattern::exactly(2), vec![0; 8]).unwrap();
    assert_eq!(pair.finish_b(request).status.taken, 8);
    assert!(other.test(quick).unwrap().is_some());
    for _ in 0..1200 {
        let request = pair.b.irecv(Pattern::exactly(1), vec![0; 20_000]).unwrap();
        assert_eq!(pair.finish_b(request).status.taken, 20_000);
    }
    assert_eq!(pair.finish_a(sends[1199]).status.code, Code::Success);
}

#[test]
fn mx_6_4_segments_are_gathered_and_scattered() {
    let mut pair = Pair::new();
    for length in [40usize, 1000, 100_000] {
        let mut source = pattern(length, 9);
        let mut target = vec![0; length];
        let pieces = |bytes: &mut [u8]| {
            let (start, middle) = (bytes.as_mut_ptr(), length / 3 + 1);
            [
                (start, middle),
                (std::ptr::null_mut(), 0),
                (start.wrapping_add(middle), length - middle),
            ]
        };
        // SAFETY: both vectors live until the requests have ended, and nothing else accesses them.
        #[allow(unsafe_code, reason = "the interface for C")]
        let (from, to) = unsafe {
            (
                Segments::new(pieces(&mut source)).unwrap(),
                Segments::new(pieces(&mut target)).unwrap(),
            )
        };
        let sent = pair.a.isend(pair.to_b, 1, Memory::Segments(from)).unwrap();
        let request = pair.b.irecv(Pattern::ANY, Memory::Segments(to)).unwrap();
        assert_eq!(pair.finish_b(request).status.taken, length as u64);
        drop(pair.finish_a(sent));
        assert_eq!(target, source);
    }
    let many = vec![(std::ptr::null_mut(), 0); 257];
    // SAFETY: the pointers are never dereferenced.
    #[allow(unsafe_code, reason = "the interface for C")]
    let refused = unsafe { Segments::new(many) };
    assert!(matches!(refused, Err(MessageError::TooManySegments)));
}

#[test]
fn messages_to_the_endpoint_itself_are_copied_and_end_together() {
    let mut pair = Pair::new();
    let own = pair.a.own();
    for length in LENGTHS {
        let sent = pair.a.isend(own, 5, pattern(length, 1)).unwrap();
        assert!(pair.a.test(sent).unwrap().is_none());
        let request = pair.a.irecv(Pattern::ANY, vec![0; length]).unwrap();
        let got = pair.a.test(request).unwrap().unwrap();
        assert_eq!(got.memory.bytes(), pattern(length, 1));
        assert_eq!(got.status.peer, Some(own));
        assert_eq!(
            pair.a.test(sent).unwrap().unwrap().status.code,
            Code::Success
        );
    }
    let address = pair.a.address();
    assert_eq!(pair.a.connect(address, 0, None).unwrap(), own);
}

#[test]
fn mx_6_2_context_ids_keep_queues_apart() {
    let contexts = Contexts::new(8, 56).unwrap();
    let options = Options {
        contexts,
        ..Options::default()
    };
    let mut pair = Pair::with(&options);
    let pattern = |context: u64| Pattern::new(context << 56, 0xff << 56).unwrap();
    assert!(matches!(
        pair.b.irecv(Pattern::ANY, Memory::Empty),
        Err(MessageError::ContextMask)
    ));
    for context in [3u64, 1, 2] {
        drop(
            pair.a
                .isend(pair.to_b, context << 56 | 9, vec![context as u8]),
        );
    }
    pair.run_until_idle();
    for context in [1u64, 2, 3] {
        let request = pair.b.irecv(pattern(context), vec![0]).unwrap();
        assert_eq!(pair.finish_b(request).memory.bytes(), [context as u8]);
    }
    assert!(pair.b.iprobe(Pattern::ANY).is_none());
}

#[test]
fn cancel_ends_a_receive_that_matched_nothing() {
    let mut pair = Pair::new();
    let request = pair.b.irecv(Pattern::exactly(1), vec![0; 8]).unwrap();
    let stays = pair.b.irecv(Pattern::exactly(1), vec![0; 8]).unwrap();
    assert!(pair.b.cancel(request).unwrap());
    let got = pair.b.test(request).unwrap().unwrap();
    assert_eq!(got.status.code, Code::Cancelled);
    assert!(matches!(
        pair.b.test(request),
        Err(MessageError::BadRequest)
    ));
    let sent = pair.a.issend(pair.to_b, 1, vec![1; 8]).unwrap();
    assert!(matches!(
        pair.a.cancel(sent),
        Err(MessageError::CannotCancel)
    ));
    pair.run_until_idle();
    assert!(!pair.b.cancel(stays).unwrap(), "it has matched");
    assert_eq!(pair.finish_b(stays).status.code, Code::Success);
}

#[test]
fn peek_and_any_see_what_ended_oldest_first_and_forgotten_ones_are_not_seen() {
    let mut pair = Pair::new();
    let first = pair.a.isend(pair.to_b, 11, vec![1]).unwrap();
    let second = pair.a.isend(pair.to_b, 22, vec![2]).unwrap();
    let third = pair.a.isend(pair.to_b, 33, vec![3]).unwrap();
    pair.a.forget(first).unwrap();
    assert_eq!(pair.a.ipeek(), Some(second));
    assert_eq!(pair.a.ipeek(), Some(second));
    let (request, completion) = pair.a.test_any(Pattern::exactly(33)).unwrap();
    assert_eq!((request, completion.status.value), (third, 33));
    assert!(pair.a.test_any(Pattern::exactly(33)).is_none());
    let (request, _) = pair.a.wait_any(Pattern::ANY, None).unwrap().unwrap();
    assert_eq!(request, second);
    assert_eq!(pair.a.peek(Some(Duration::ZERO)).unwrap(), None);
    let later = pair.b.irecv(Pattern::exactly(99), vec![0]).unwrap();
    pair.b.forget(later).unwrap();
    assert!(pair.b.cancel(later).unwrap());
    assert!(matches!(pair.b.test(later), Err(MessageError::BadRequest)));
}

#[test]
fn waits_end_by_time_and_by_a_waker_and_requests_go_on() {
    let mut pair = Pair::new();
    let request = pair.b.irecv(Pattern::ANY, vec![0; 8]).unwrap();
    let limit = Some(Duration::from_millis(1));
    assert!(pair.b.wait(request, limit).unwrap().is_none());
    assert!(pair.b.probe(Pattern::ANY, limit).unwrap().is_none());
    let waker = pair.b.waker();
    std::thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        assert!(pair.b.wait(request, None).unwrap().is_none());
    });
    let _ = pair.a.isend(pair.to_b, 1, vec![1; 8]).unwrap();
    assert_eq!(pair.b.wait(request, None).unwrap().unwrap().status.taken, 8);
}

#[test]
fn a_sleeping_sender_is_woken_by_a_receive_of_an_unexpected_message() {
    let Pair {
        mut a, mut b, to_b, ..
    } = Pair::new();
    let sent = a.issend(to_b, 1, vec![1; 8]).unwrap();
    let sender = std::thread::spawn(move || a.wait(sent, None).unwrap());
    assert!(b.probe(Pattern::ANY, None).unwrap().is_some());
    // Longer than the endpoint polls.
    std::thread::sleep(Duration::from_millis(100));
    let _received = b.irecv(Pattern::ANY, vec![0; 8]).unwrap();
    let start = Instant::now();
    while !sender.is_finished() {
        assert!(start.elapsed() < HANG, "the sender was not woken");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_message_behind_the_last_receive_stays_in_its_slot_until_the_next_poll() {
    let mut pair = Pair::new();
    for value in 1..=3 {
        let sent = pair.a.isend(pair.to_b, value, vec![7; 8]).unwrap();
        pair.finish_a(sent);
    }
    let first = pair.b.irecv(Pattern::exactly(1), vec![0; 8]).unwrap();
    pair.b.progress();
    assert!(pair.b.is_ended(first).unwrap());
    assert!(pair.b.arrived(&Pattern::ANY).is_none());
    let mut pair_b = |value| {
        pair.b.progress();
        pair.b.arrived(&Pattern::exactly(value)).is_some()
    };
    assert!(pair_b(2) && pair_b(3));
}
