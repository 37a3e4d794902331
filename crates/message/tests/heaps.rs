//! Large messages between members that share a region: copied once, from the sender's member's heap.
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

/// Around units and pages.
const LENGTHS: [usize; 6] = [32_769, 65_536, 65_537, 100_000, 131_072, 1_000_003];

fn is_lent(memory: &Memory) -> bool {
    matches!(memory, Memory::SharedBuffer(_))
}

/// What is received into such memory, or other one.
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
fn members_of_a_group_copy_once_and_others_have_it_streamed() {
    for members in [DIRECT, MEDIATED] {
        let plane = Plane::new(&members);
        let (mut a, mut b) = (plane.open("a"), plane.open("b"));
        let (to_b, to_a) = connect(&mut a, &mut b);
        let mut count = 0;
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            for lent in [false, true] {
                let sent = pattern(length, seed as u64);
                let memory = filled(&mut a, to_b, &sent);
                assert_eq!(is_lent(&memory), members == DIRECT);
                let room = match lent {
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
    // To an endpoint of the same member, and to oneself.
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
    // Longer than there is room for; streamed, medium and short into it.
    let memory = filled(&mut a, to_b, &sent);
    let request = a.isend(to_b, 1, memory).unwrap();
    let got = receive((&mut a, &mut b), request, vec![0; 50_000].into());
    assert_eq!(got, (Code::Truncated, sent[..50_000].to_vec()));
    for length in [60_000, 5000, 48, 3] {
        let mut room = filled(&mut b, to_a, &sent);
        let request = a.isend(to_b, 1, pattern(length, 2)).unwrap();
        let got = b.irecv(Pattern::ANY, std::mem::take(&mut room)).unwrap();
        let got = both(&mut b, &mut a, got);
        assert!(is_lent(&got.memory) && a.test(request).unwrap().is_some());
        let expected = [&pattern(length, 2)[..], &sent[length..]].concat();
        assert_eq!(bytes(&got.memory), expected, "{length} bytes");
    }
    // Small messages gain nothing by it.
    assert!(!is_lent(&a.allocate_for(to_b, 32_768).unwrap()));
}

#[test]
fn a_full_heap_leaves_the_endpoints_own_and_is_free_again_when_its_users_are_gone() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    let (to_b, _) = connect(&mut a, &mut b);
    let lent = |a: &mut Endpoint| {
        let all = (0..1000).map(|_| a.allocate_for(to_b, 1 << 20).unwrap());
        all.take_while(is_lent).collect::<Vec<_>>()
    };
    let all = lent(&mut a);
    assert!(all.len() > 30, "{} MiB", all.len());
    let count = all.len();
    let mut other = plane.open("a");
    let (other_to_b, _) = connect(&mut other, &mut b);
    assert!(!is_lent(&other.allocate_for(other_to_b, 1 << 20).unwrap()));
    drop(all);
    assert!(is_lent(&other.allocate_for(other_to_b, 1 << 20).unwrap()));
    assert_eq!(lent(&mut a).len(), count);
}

/// What one that lets go of the link wrote over is not taken for the message.
#[test]
fn what_its_sender_may_write_over_is_not_received() {
    let plane = Plane::new(&DIRECT);
    let (mut a, mut b) = (plane.open("a"), plane.open("b"));
    for dies in [false, true] {
        let (to_b, _) = connect(&mut a, &mut b);
        let memory = filled(&mut a, to_b, &pattern(70_000, 1));
        let request = a.isend(to_b, 1, memory).unwrap();
        while b.iprobe(Pattern::ANY).is_none() {}
        // It looks no more until it receives.
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
        assert!(is_lent(&memory));
        memory.put(0, &pattern(70_000, 2));
        let wanted = b.irecv(Pattern::ANY, vec![0; 70_000]).unwrap();
        let got = both(&mut b, &mut a, wanted);
        assert_eq!(got.status.code, Code::Closed, "dies: {dies}");
        assert_eq!(b.copies(), Copies::default());
        assert!(b.lost().is_some() && b.lost().is_none());
    }
}

#[test]
fn what_was_sent_behind_a_message_that_was_taken_back_is_received() {
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
fn a_member_that_is_gone_ends_what_it_offered_and_nothing_else() {
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
    // Its program lives, and so does its memory.
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

/// What becomes of a receive of 100,000 bytes that meets an offer.
fn meet(
    (inside, members): (bool, Option<[u32; 2]>),
    (length, unit, number): (u64, u32, u32),
) -> (Code, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = open(folder.path());
    let mut attacker = RegionPeer::connect(folder.path(), &mut victim, inside, members);
    // What it may read, and what not: the heap of its own member.
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

/// The victim sits at 0, the other one at 1, where every number is 2 now.
const MEMBERS: Option<[u32; 2]> = Some([0, 1]);

#[test]
fn an_offer_that_lies_costs_its_sender_only() {
    let good = (100_000, 1, 2);
    let (code, bytes) = meet((true, MEMBERS), good);
    assert!((code, bytes) == (Code::Success, vec![9; 100_000]));
    let refused = |link, offer| meet(link, offer).0;
    // OutOfBounds: behind the end, across it, and so far behind that it would begin anew.
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
    // Not there any more, or never.
    for number in [0, 3, 4, u32::MAX] {
        assert_eq!(refused((true, MEMBERS), (100_000, 1, number)), Code::Closed);
    }
}

#[test]
fn what_cannot_be_reached_is_asked_for() {
    // Nobody said where the heap is, there is no such member, and no region.
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
    fn any_offer_is_answered(length: u64, short in 1u64..400_000, unit: u32, near in 0..UNITS + 2, number in 0u32..4) {
        for (length, unit) in [(length, unit), (length, near), (short, near)] {
            let (code, bytes) = meet((true, MEMBERS), (length, unit, number));
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
            // Never a byte of the heap that it is not to read.
            prop_assert!(bytes.iter().all(|byte| [0, 9].contains(byte)));
        }
    }
}
