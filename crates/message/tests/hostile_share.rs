//! Cooperative copies with a scripted peer: what it may do, and what ends its link.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;
#[path = "common/region_peer.rs"]
mod region_peer;

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::scripted_peer::{COPIED, DONE, MEMBER_HEAP, SHARE};
use common::{bytes, filled, marked};
use message::limits::PIECE;
use message::{Board, Code, Copies, Endpoint, Memory, Options, Pattern, Request};
use proptest::prelude::*;
use region_peer::{RegionPeer, UNITS};
use window::lane::Record;
use window::region::{Heap, HeapAddress, SharedBuffer, UNIT, UnitAllocator};

/// No operation takes this long; a longer wait is a hang.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// The handle that the scripted peer uses for itself.
const OWN: u64 = 5;

/// An endpoint, and its scripted peer.
struct Rig {
    victim: Endpoint,
    region_peer: RegionPeer,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// The victim is member 0, the peer member 1.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let mut victim = Endpoint::open(&board, &Options::default()).unwrap();
        let region_peer = RegionPeer::connect(folder.path(), &mut victim, true, Some([0, 1]));
        Self {
            victim,
            region_peer,
            _folder: folder,
        }
    }

    fn heap(&self, member: u32) -> Heap {
        self.region_peer.region.heap(member).unwrap().unwrap()
    }

    /// Allocates memory of the peer.
    fn allocate(&self, bytes: &[u8]) -> SharedBuffer {
        let buffer = self
            .heap(1)
            .allocate(&UnitAllocator::in_process(), bytes.len());
        let mut buffer = buffer.unwrap().unwrap();
        buffer.write(0, bytes).unwrap();
        buffer
    }

    fn say(&mut self, tag: u32, body: [u64; 7]) {
        self.region_peer.ends.producers[1].push(&Record { tag, body });
    }

    /// Returns the next record of the victim.
    fn hear(&mut self, lane: usize) -> Option<Record> {
        self.victim.progress();
        let lane = &mut self.region_peer.ends.consumers[lane];
        let heard = lane.pop();
        lane.release();
        heard
    }

    /// Makes the victim send; returns its request, and the peer's handle of it.
    fn offered(&mut self, bytes: &[u8]) -> (Request, u64) {
        let peer = self.region_peer.peer;
        let memory = filled(&mut self.victim, peer, bytes);
        let request = self.victim.isend(peer, 1, memory).unwrap();
        let offer = self.hear(0).unwrap();
        assert_eq!(
            (offer.tag, offer.body[1]),
            (MEMBER_HEAP, bytes.len() as u64)
        );
        (request, offer.body[2])
    }

    fn ended(&mut self, request: Request) -> (Code, Memory) {
        let ended = self.victim.wait(request, HANG).unwrap().unwrap();
        (ended.status.code, ended.memory)
    }
}

fn word(address: HeapAddress) -> u64 {
    u64::from(address.generation) << 32 | u64::from(address.unit)
}

/// Returns the body of a *share* record of the peer of [`Rig::offered`].
fn share(handle: u64, address: HeapAddress, wanted: u64, epoch: u32) -> [u64; 7] {
    [handle, OWN, word(address), wanted, epoch.into(), 0, 0]
}

#[test]
fn the_sender_copies_what_the_receiver_has_not_claimed() {
    let mut rig = Rig::new();
    let sent = marked(700_000, 1);
    let (request, handle) = rig.offered(&sent);
    let room = rig.allocate(&[0; 700_000]);
    let epoch = rig.region_peer.ends.claims_in.begin();
    let mut claims = rig.region_peer.ends.claims_in.consumer(epoch, 6);
    assert_eq!(claims.claim(), Ok(Some(0)));
    assert_eq!(claims.claim(), Ok(Some(1)));
    rig.say(SHARE, share(handle, room.address(), 700_000, epoch));
    let copied = rig.hear(1).unwrap();
    assert_eq!((copied.tag, &copied.body[..2]), (COPIED, &[OWN, 4][..]));
    let mut seen = vec![0; 700_000];
    room.read(0, &mut seen).unwrap();
    let claimed = 2 * PIECE as usize;
    assert!(seen[..claimed].iter().all(|byte| *byte == 0));
    assert!(seen[claimed..] == sent[claimed..]);
    assert!(rig.victim.test(request).unwrap().is_none());
    rig.say(DONE, [handle, 700_000, 0, 0, 0, 0, 0]);
    let (code, memory) = rig.ended(request);
    assert!(code == Code::Success && bytes(&memory) == sent);
}

#[test]
fn a_late_sender_copies_nothing() {
    let mut rig = Rig::new();
    for is_claimed in [true, false] {
        let (request, handle) = rig.offered(&marked(300_000, 1));
        let room = rig.allocate(&[0; 300_000]);
        let epoch = rig.region_peer.ends.claims_in.begin();
        match is_claimed {
            true => {
                let mut claims = rig.region_peer.ends.claims_in.consumer(epoch, 3);
                while claims.claim().unwrap().is_some() {}
            }
            false => drop(rig.region_peer.ends.claims_in.begin()),
        }
        rig.say(SHARE, share(handle, room.address(), 300_000, epoch));
        assert_eq!(rig.hear(1), None);
        rig.say(DONE, [handle, 300_000, 0, 0, 0, 0, 0]);
        assert_eq!(rig.ended(request).0, Code::Success);
        let mut seen = vec![1; 300_000];
        room.read(0, &mut seen).unwrap();
        assert!(seen.iter().all(|byte| *byte == 0));
    }
}

/// Returns the result of a send of 300,000 bytes whose receiver sends a share this often.
fn answer(times: u32, change: impl Fn([u64; 7]) -> [u64; 7]) -> Code {
    let mut rig = Rig::new();
    let sent = marked(300_000, 1);
    let (request, handle) = rig.offered(&sent);
    let room = rig.allocate(&[0; 300_000]);
    for _ in 0..times {
        let epoch = rig.region_peer.ends.claims_in.begin();
        let body = change(share(handle, room.address(), 300_000, epoch));
        rig.say(SHARE, body);
        rig.victim.progress();
    }
    rig.say(DONE, [handle, 300_000, 0, 0, 0, 0, 0]);
    let (code, memory) = rig.ended(request);
    assert!(
        bytes(&memory) == sent,
        "the sender's memory must not change"
    );
    code
}

#[test]
fn a_false_share_ends_its_own_link_only() {
    let with = |at: usize, word: u64| {
        move |mut body: [u64; 7]| {
            body[at] = word;
            body
        }
    };
    assert_eq!(answer(1, |body| body), Code::Success);
    assert_eq!(answer(2, |body| body), Code::Unreachable);
    // Another request, no length, and more than the message's length.
    for (at, word) in [(0, 77), (0, u64::MAX), (3, 0), (3, 300_001), (3, u64::MAX)] {
        assert_eq!(answer(1, with(at, word)), Code::Unreachable);
    }
    // Behind the end, across it, and so far behind that the sum overflows.
    for unit in [UNITS, UNITS - 4, u32::MAX] {
        let address = HeapAddress {
            unit,
            generation: 2,
        };
        assert_eq!(answer(1, with(2, word(address))), Code::Unreachable);
    }
    // A revoked generation, one that never was, and one that is being written.
    for generation in [0, 4, 3, u32::MAX] {
        let address = HeapAddress {
            unit: 0,
            generation,
        };
        assert_eq!(answer(1, with(2, word(address))), Code::Closed);
    }
    // An invalid epoch.
    assert_eq!(answer(1, with(4, 1 << 32)), Code::Unreachable);
    assert_eq!(answer(1, with(4, 9)), Code::Success);
}

#[test]
fn a_message_on_no_member_heap_is_not_shared() {
    let mut rig = Rig::new();
    let peer = rig.region_peer.peer;
    let request = rig.victim.isend(peer, 1, vec![1; 300_000]).unwrap();
    let handle = rig.hear(0).unwrap().body[2];
    let room = rig.allocate(&[0; 300_000]);
    let epoch = rig.region_peer.ends.claims_in.begin();
    rig.say(SHARE, share(handle, room.address(), 300_000, epoch));
    assert_eq!(rig.ended(request).0, Code::Unreachable);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_copied_outside_the_shares_buffer(unit in 0..UNITS + 2, generation in 0u32..6, wanted in 0u64..400_000) {
        let mut rig = Rig::new();
        let (request, handle) = rig.offered(&marked(300_000, 1));
        let room = rig.allocate(&vec![7; UNITS as usize * UNIT as usize]);
        let address = HeapAddress { unit, generation };
        let epoch = rig.region_peer.ends.claims_in.begin();
        rig.say(SHARE, share(handle, address, wanted, epoch));
        rig.victim.progress();
        let inside = u64::from(unit) * UNIT + wanted <= u64::from(UNITS) * UNIT;
        let good = inside && (1..=300_000).contains(&wanted) && generation == room.address().generation;
        let mut expected = vec![7; UNITS as usize * UNIT as usize];
        if good {
            let start = unit as usize * UNIT as usize;
            let wanted = wanted as usize;
            expected[start..start + wanted].copy_from_slice(&marked(wanted, 1));
        }
        let mut seen = vec![0; expected.len()];
        room.read(0, &mut seen).unwrap();
        prop_assert!(seen == expected);
        prop_assert_eq!(rig.victim.test(request).unwrap().is_none(), good);
    }
}

/// A receive of the victim that waits for the pieces that the peer has claimed.
struct Waiting {
    rig: Rig,
    request: Request,
    /// The peer's handle of it, and its address.
    handle: u64,
    address: HeapAddress,
    /// Pieces that the peer has claimed.
    claimed: Vec<u32>,
    from: SharedBuffer,
    epoch: u32,
}

/// Bytes of a message, and its pieces.
const LENGTH: usize = 900_000;
const PIECES: u16 = 7;

impl Waiting {
    fn new() -> Self {
        let mut rig = Rig::new();
        let from = rig.allocate(&marked(LENGTH, 1));
        let address = from.address();
        // Repeats until the peer was in time to claim a piece.
        for epoch in 1.. {
            let peer = rig.region_peer.peer;
            let room = filled(&mut rig.victim, peer, &[0; LENGTH]);
            let request = rig.victim.irecv(Pattern::ANY, room).unwrap();
            rig.region_peer
                .offer(LENGTH as u64, address.unit, address.generation);
            let Rig {
                victim,
                region_peer,
                ..
            } = &mut rig;
            let mut claims = region_peer.ends.claims_out.producer(epoch, PIECES);
            let over = AtomicBool::new(false);
            let claimed = std::thread::scope(|scope| {
                let over = &over;
                let peer = scope.spawn(move || {
                    let mut claimed = Vec::new();
                    while !over.load(Ordering::Relaxed) {
                        claimed.extend(claims.claim().unwrap());
                    }
                    claimed
                });
                victim.progress();
                over.store(true, Ordering::Relaxed);
                peer.join().unwrap()
            });
            let share = rig.hear(1).unwrap();
            assert_eq!(
                (share.tag, share.body[0], share.body[3]),
                (SHARE, 5, LENGTH as u64)
            );
            assert_eq!(share.body[4], u64::from(epoch));
            let unit = share.body[2] as u32;
            let generation = (share.body[2] >> 32) as u32;
            if !claimed.is_empty() {
                assert_eq!(rig.hear(1), None, "the receive must not have ended");
                return Self {
                    rig,
                    request,
                    handle: share.body[1],
                    address: HeapAddress { unit, generation },
                    claimed,
                    from,
                    epoch,
                };
            }
            assert_eq!(rig.hear(1).unwrap().tag, DONE);
            let (code, memory) = rig.ended(request);
            assert!(code == Code::Success && bytes(&memory) == marked(LENGTH, 1));
        }
        unreachable!()
    }

    fn copied(&mut self, receiver: u64, pieces: usize) {
        self.rig
            .say(COPIED, [receiver, pieces as u64, 0, 0, 0, 0, 0]);
    }

    /// Writes the generation of the victim's units.
    fn generation(&self, generation: u32) {
        let region = &self.rig.region_peer.region;
        let at = region.layout().heap_at(0) + u64::from(self.address.unit) * 4;
        rustix::io::pwrite(region.as_fd(), &generation.to_le_bytes(), at).unwrap();
    }
}

#[test]
fn a_message_is_received_when_the_sender_has_copied_its_pieces() {
    let mut waiting = Waiting::new();
    let heap = waiting.rig.heap(0);
    for piece in waiting.claimed.clone() {
        let from = u64::from(piece) * PIECE;
        let length = (LENGTH as u64 - from).min(PIECE) as usize;
        let copied = heap.put(waiting.address, from, &waiting.from, length);
        assert_eq!(copied, Ok(()));
    }
    let request = waiting.request;
    assert!(waiting.rig.victim.test(request).unwrap().is_none());
    waiting.copied(waiting.handle, waiting.claimed.len());
    let (code, memory) = waiting.rig.ended(request);
    assert!(code == Code::Success && bytes(&memory) == marked(LENGTH, 1));
    let Copies { once, shared, .. } = waiting.rig.victim.copies();
    assert_eq!((once, shared), (waiting.epoch.into(), 1));
    // It is not accepted again.
    let (request, _) = waiting.rig.offered(&marked(100_000, 1));
    waiting.copied(waiting.handle, waiting.claimed.len());
    assert_eq!(waiting.rig.ended(request).0, Code::Unreachable);
}

#[test]
fn a_sender_that_reports_wrong_pieces_is_disconnected() {
    for wrong in [0, 1, 2, 3] {
        let mut waiting = Waiting::new();
        let (handle, count) = (waiting.handle, waiting.claimed.len());
        match wrong {
            0 => waiting.copied(handle, count + 1),
            1 => waiting.copied(handle, count - 1),
            2 => waiting.copied(handle + 1, count),
            _ => waiting.copied(handle, (1 << 32) + count),
        }
        let (code, memory) = waiting.rig.ended(waiting.request);
        assert_eq!(code, Code::Unreachable);
        // No peer is writing, and none can begin.
        assert_eq!(memory.length(), LENGTH as u64);
        let heap = waiting.rig.heap(0);
        assert!(heap.put(waiting.address, 0, &waiting.from, 1).is_err());
    }
}

#[test]
fn memory_that_a_peer_still_writes_is_not_returned() {
    for is_there in [true, false] {
        for dies in [true, false] {
            let waiting = Waiting::new();
            if is_there {
                waiting.generation(waiting.address.generation | 1);
            }
            let mut rig = waiting.rig;
            match dies {
                true => drop(rig.region_peer),
                false => rig.victim.disconnect(rig.region_peer.peer).unwrap(),
            }
            let ended = rig.victim.wait(waiting.request, HANG).unwrap().unwrap();
            assert_eq!(ended.status.code, Code::Closed);
            let length = if is_there { 0 } else { LENGTH as u64 };
            assert_eq!(ended.memory.length(), length, "{is_there}, {dies}");
        }
    }
}

#[test]
fn the_receive_ends_whatever_a_peer_writes_into_the_claims() {
    for seed in 0..200u64 {
        let mut rig = Rig::new();
        let (peer, from) = (rig.region_peer.peer, rig.allocate(&marked(LENGTH, 1)));
        let room = filled(&mut rig.victim, peer, &[0; LENGTH]);
        let request = rig.victim.irecv(Pattern::ANY, room).unwrap();
        let address = from.address();
        rig.region_peer
            .offer(LENGTH as u64, address.unit, address.generation);
        let region = &rig.region_peer.region;
        // The claims word of the direction to the victim: in the page behind the header.
        let at = region.layout().link_at(0) + 4096 + 384;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = seed;
                while !over.load(Ordering::Relaxed) {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let word = (random >> 63) << 32 | random >> 40 & 7;
                    rustix::io::pwrite(region.as_fd(), &word.to_le_bytes(), at).unwrap();
                }
            });
            rig.victim.progress();
            over.store(true, Ordering::Relaxed);
        });
        drop(rig.region_peer);
        let ended = rig.victim.wait(request, HANG).unwrap().unwrap();
        let expected = [Code::Success, Code::Closed, Code::Unreachable];
        assert!(expected.contains(&ended.status.code));
    }
}
