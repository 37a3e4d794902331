//! Large messages between members that share a region: copied once, from the heap of the sender's
//! member.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;
#[path = "common/plane.rs"]
mod plane;
#[path = "common/region_peer.rs"]
mod region_peer;

use common::scripted_peer::PULL;
use common::{both, bytes, filled, pattern};
use message::{Code, Copies, Endpoint, Memory, Pattern, Request};
use plane::{DIRECT, HANG, MEDIATED, Plane, connect, open};
use proptest::prelude::*;
use region_peer::{RegionPeer, UNITS};
use window::region::{UNIT, UnitAllocator};

/// Lengths around units and pages.
const LENGTHS: [usize; 6] = [32_769, 65_536, 65_537, 100_000, 131_072, 1_000_003];

fn is_shared(memory: &Memory) -> bool {
    matches!(memory, Memory::SharedBuffer(_))
}

/// Receives a message into `room`.
fn receive(
    (from, to): (&mut Endpoint, &mut Endpoint),
    request: Request,
    room: Memory,
) -> (Code, Vec<u8>) {
    let wanted = to.irecv(Pattern::ANY, room).unwrap();
    let got = both(to, from, wanted);
    let sent = both(from, to, request).status;
    assert_eq!((sent.code, sent.taken), (got.status.code, got.status.taken));
    (got.status.code, bytes(&got.memory))
}

#[test]
fn messages_are_copied_once_in_a_group_and_streamed_otherwise() {
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, to_a) = connect(&mut a, &mut b);
        let mut count = 0;
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for shared in [false, true] {
                let sent = pattern(length, seed as u64);
                let memory = filled(&mut a, to_b, &sent);
                assert_eq!(is_shared(&memory), members == DIRECT);
                let room = match shared {
                    true => b.allocate_for(to_a, length).unwrap(),
                    false => Memory::from(vec![0; length]),
                };
                let request = a.isend(to_b, 1, memory).unwrap();
                let got = receive((&mut a, &mut b), request, room);
                assert_eq!(got, (Code::Success, sent), "{length} bytes, {members:?}");
                count += 1;
            }
        }
        let (once, streamed) = match members == DIRECT {
            true => (count, 0),
            false => (0, count),
        };
        assert_eq!(
            b.copies(),
            Copies {
                once,
                shared: b.copies().shared,
                streamed
            }
        );
    }
}

#[test]
fn memory_of_the_heap_can_be_sent_and_received_like_any_other() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b, mut near) = (plane.open("a"), plane.open("b"), plane.open("a"));
    let (to_b, to_a) = connect(&mut a, &mut b);
    let (to_near, _) = connect(&mut a, &mut near);
    let sent = pattern(70_000, 1);
    // To an endpoint of the same member, and to the endpoint itself.
    let memory = filled(&mut a, to_b, &sent);
    let request = a.isend(to_near, 1, memory).unwrap();
    let room = vec![0; 70_000].into();
    let got = receive((&mut a, &mut near), request, room);
    assert_eq!(got, (Code::Success, sent.clone()));
    assert_eq!((near.copies().once, near.copies().streamed), (0, 1));
    let memory = filled(&mut a, to_b, &sent);
    let request = a.isend(a.own(), 1, memory).unwrap();
    let wanted = a.irecv(Pattern::ANY, vec![0; 70_000]).unwrap();
    assert_eq!(a.wait(wanted, HANG).unwrap().unwrap().memory.bytes(), sent);
    assert!(a.wait(request, HANG).unwrap().is_some());
    // From the heap of another member than the sender's.
    let memory = filled(&mut b, to_a, &sent);
    let request = a.isend(to_b, 1, memory).unwrap();
    let got = receive((&mut a, &mut b), request, vec![0; 70_000].into());
    assert_eq!(got, (Code::Success, sent.clone()));
    assert_eq!(b.copies().streamed, 1);
    // Longer than the receive; then streamed, medium and eager messages into the heap.
    let memory = filled(&mut a, to_b, &sent);
    let request = a.isend(to_b, 1, memory).unwrap();
    let got = receive((&mut a, &mut b), request, vec![0; 50_000].into());
    assert_eq!(got, (Code::Truncated, sent[..50_000].to_vec()));
    for length in [60_000, 5000, 48, 3] {
        let mut room = filled(&mut b, to_a, &sent);
        let request = a.isend(to_b, 1, pattern(length, 2)).unwrap();
        let got = b.irecv(Pattern::ANY, std::mem::take(&mut room)).unwrap();
        let got = both(&mut b, &mut a, got);
        assert!(is_shared(&got.memory) && a.test(request).unwrap().is_some());
        let expected = [&pattern(length, 2)[..], &sent[length..]].concat();
        assert_eq!(bytes(&got.memory), expected, "{length} bytes");
    }
    // Small messages gain nothing from it.
    assert!(!is_shared(&a.allocate_for(to_b, 32_768).unwrap()));
}

#[test]
fn a_full_heap_falls_back_to_the_endpoints_and_is_freed_with_its_users() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let (to_b, _) = connect(&mut a, &mut b);
    let shared = |a: &mut Endpoint| {
        let all = (0..1000).map(|_| a.allocate_for(to_b, 1 << 20).unwrap());
        all.take_while(is_shared).collect::<Vec<_>>()
    };
    let all = shared(&mut a);
    assert!(all.len() > 30, "{} MiB", all.len());
    let count = all.len();
    let mut other = plane.open("a");
    let (other_to_b, _) = connect(&mut other, &mut b);
    assert!(!is_shared(
        &other.allocate_for(other_to_b, 1 << 20).unwrap()
    ));
    drop(all);
    assert!(is_shared(&other.allocate_for(other_to_b, 1 << 20).unwrap()));
    assert_eq!(shared(&mut a).len(), count);
}

/// The receiver must not take bytes for the message that the sender wrote after it had closed the
/// link.
#[test]
fn a_message_that_its_sender_may_have_overwritten_is_not_received() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    for dies in [false, true] {
        let (to_b, _) = connect(&mut a, &mut b);
        let memory = filled(&mut a, to_b, &pattern(70_000, 1));
        let request = a.isend(to_b, 1, memory).unwrap();
        while b.iprobe(Pattern::ANY).is_none() {}
        // B does not poll until it receives.
        a.disconnect(to_b).unwrap();
        let ended = a.test(request).unwrap().unwrap();
        assert_eq!(ended.status.code, Code::Closed);
        let mut memory = ended.memory;
        if dies {
            drop((memory, a));
            a = plane.open("a");
            let (to_b, _) = connect(&mut a, &mut plane.open("b"));
            memory = a.allocate_for(to_b, 70_000).unwrap();
        }
        assert!(is_shared(&memory));
        memory.put(0, &pattern(70_000, 2));
        let wanted = b.irecv(Pattern::ANY, vec![0; 70_000]).unwrap();
        let got = both(&mut b, &mut a, wanted);
        assert_eq!(got.status.code, Code::Closed, "dies: {dies}");
        assert_eq!(b.copies(), Copies::default());
        assert!(b.lost().is_some() && b.lost().is_none());
    }
}

#[test]
fn a_message_behind_a_revoked_one_is_received() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let (to_b, _) = connect(&mut a, &mut b);
    let large = b.irecv(Pattern::exactly(1), vec![0; 70_000]).unwrap();
    let small = b.irecv(Pattern::exactly(2), vec![0; 8]).unwrap();
    let memory = filled(&mut a, to_b, &pattern(70_000, 1));
    a.isend(to_b, 1, memory).unwrap();
    a.isend(to_b, 2, vec![2; 8]).unwrap();
    a.disconnect(to_b).unwrap();
    let got = b.wait(small, HANG).unwrap().unwrap();
    assert_eq!(
        (got.status.code, got.memory.bytes()),
        (Code::Success, &[2; 8][..])
    );
    let got = b.wait(large, HANG).unwrap().unwrap();
    assert_eq!(got.status.code, Code::Closed);
}

#[test]
fn the_end_of_a_gateway_ends_its_offers_and_nothing_else() {
    let mut plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let (to_b, _) = connect(&mut a, &mut b);
    let memory = filled(&mut a, to_b, &pattern(70_000, 1));
    let request = a.isend(to_b, 1, memory).unwrap();
    while b.iprobe(Pattern::ANY).is_none() {}
    plane.gateways.remove(0);
    while b.lost().is_none() {
        b.progress();
    }
    assert!(b.iprobe(Pattern::ANY).is_none(), "its offer went with it");
    // Its program still runs, and has its memory.
    let ended = a.wait(request, HANG).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Closed);
    assert_eq!(bytes(&ended.memory), pattern(70_000, 1));
    plane.gateways.push(plane.gateway("a"));
    let (to_b, _) = connect(&mut a, &mut b);
    let request = a.isend(to_b, 1, ended.memory).unwrap();
    let got = receive((&mut a, &mut b), request, vec![0; 70_000].into());
    assert_eq!(got.0, Code::Success);
    assert_eq!(got.1, pattern(70_000, 1));
}

/// Returns the result of a receive of 100,000 bytes that matches an offer.
fn receive_offer(
    (inside, members): (bool, Option<[u32; 2]>),
    (length, unit, number): (u64, u32, u32),
) -> (Code, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = open(folder.path());
    let mut attacker = RegionPeer::connect(folder.path(), &mut victim, inside, members);
    // The heap that the victim may read, and that of its own member.
    let heaps = [0, 1].map(|member| attacker.region.heap(member).unwrap().unwrap());
    let whole = UNITS as usize * UNIT as usize;
    for (heap, byte) in heaps.iter().zip([8, 9]) {
        let mut buffer = heap
            .allocate(&UnitAllocator::in_process(), whole)
            .unwrap()
            .unwrap();
        buffer.write(0, &vec![byte; whole]).unwrap();
    }
    let request = victim.irecv(Pattern::ANY, vec![0; 100_000]).unwrap();
    attacker.offer(length, unit, number);
    let got = victim.wait(request, HANG).unwrap().unwrap();
    assert_eq!(got.status.peer, Some(attacker.peer));
    (got.status.code, bytes(&got.memory))
}

/// The victim is member 0, the peer member 1. Every generation is 2 now.
const MEMBERS: Option<[u32; 2]> = Some([0, 1]);

#[test]
fn a_false_offer_ends_the_link_of_its_sender_only() {
    let good = (100_000, 1, 2);
    let (code, bytes) = receive_offer((true, MEMBERS), good);
    assert!((code, bytes) == (Code::Success, vec![9; 100_000]));
    let refused = |link, offer| receive_offer(link, offer).0;
    // Out of bounds: behind the end, across it, and so far behind that the sum overflows.
    for (length, unit) in [
        (1, UNITS),
        (70_000, UNITS - 1),
        (u64::MAX, UNITS - 1),
        (1, u32::MAX),
    ] {
        assert_eq!(
            refused((true, MEMBERS), (length, unit, 2)),
            Code::Unreachable
        );
    }
    // A revoked generation, or one that never was.
    for number in [0, 3, 4, u32::MAX] {
        assert_eq!(refused((true, MEMBERS), (100_000, 1, number)), Code::Closed);
    }
}

#[test]
fn a_message_on_an_unreachable_heap_is_pulled() {
    // No member was given, there is no such member, and the window is in no region.
    for (inside, members) in [(true, None), (true, Some([0, 2])), (false, MEMBERS)] {
        let folder = tempfile::tempdir().unwrap();
        let mut victim = open(folder.path());
        let mut attacker = RegionPeer::connect(folder.path(), &mut victim, inside, members);
        let request = victim.irecv(Pattern::ANY, vec![0; 100_000]).unwrap();
        attacker.offer(100_000, 1, 1);
        let asked = loop {
            assert!(victim.test(request).unwrap().is_none());
            if let Some(record) = attacker.ends.consumers[1].pop() {
                break record;
            }
        };
        assert_eq!(
            (asked.tag, asked.body[0], asked.body[2]),
            (PULL, 5, 100_000)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_offer_ends_the_receive(length: u64, short in 1u64..400_000, unit: u32, near in 0..UNITS + 2, number in 0u32..4) {
        for (length, unit) in [(length, unit), (length, near), (short, near)] {
            let (code, bytes) = receive_offer((true, MEMBERS), (length, unit, number));
            let wanted = length.min(100_000);
            let inside = u64::from(unit) * UNIT + wanted <= u64::from(UNITS) * UNIT;
            let expected = match (inside, number) {
                _ if wanted == 0 => Code::Success,
                (false, _) => Code::Unreachable,
                (true, 2) if length > 100_000 => Code::Truncated,
                (true, 2) => Code::Success,
                (true, _) => Code::Closed,
            };
            prop_assert_eq!(code, expected);
            // Never a byte of the heap of its own member.
            prop_assert!(bytes.iter().all(|byte| [0, 9].contains(byte)));
        }
    }
}
