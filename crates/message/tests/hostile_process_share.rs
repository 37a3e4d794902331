//! Messages that two processes copy, with a scripted peer: what it may do, and what ends its link.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::marked;
use common::scripted_peer::{
    self, CHUNK, COPIED, DONE, PROCESS_MEMORY, PROCESS_OFFER, PROCESS_SHARE, PULL,
};
use message::limits::COPIED_TOGETHER;
use message::{Address, Board, Code, Endpoint, Options, Pattern, Peer, Request};
use window::attach::Channel;
use window::lane::Record;
use window::layout::Layout;
use window::{Ends, Side, Window};

/// No operation takes this long; a longer wait is a hang.
const HANG: Option<Duration> = Some(Duration::from_secs(60));

/// Bytes of a short message, and of its first half.
const SHORT: usize = 65_536;
const HALF: usize = SHORT / 2;

/// Nothing is mapped there.
const UNMAPPED: u64 = 4096;

/// An endpoint, and its scripted peer, which is in the same process.
struct Rig {
    victim: Endpoint,
    peer: Peer,
    ends: Ends,
    _channel: Channel,
    _folder: tempfile::TempDir,
}

impl Rig {
    fn new(flags: u8) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let board = Board::open(folder.path()).unwrap();
        let mut victim = Endpoint::open(&board, &Options::default()).unwrap();
        let links = [message::limits::MESSAGES, message::limits::CONTROL];
        let window = Window::create(Layout::new(links).unwrap()).unwrap();
        let from = Address {
            endpoint: 77,
            ..victim.address()
        };
        let (channel, peer) =
            scripted_peer::connect(folder.path(), &mut victim, from, &window, flags, None);
        Self {
            victim,
            peer,
            ends: window.ends(Side::Creator).unwrap(),
            _channel: channel,
            _folder: folder,
        }
    }

    fn say(&mut self, lane: usize, tag: u32, body: [u64; 7]) {
        self.ends.producers[lane].push(&Record { tag, body });
    }

    /// Returns the next record of the victim.
    fn hear(&mut self, lane: usize) -> Option<Record> {
        self.victim.progress();
        self.next(lane)
    }

    fn next(&mut self, lane: usize) -> Option<Record> {
        let lane = &mut self.ends.consumers[lane];
        let heard = lane.pop();
        lane.release();
        heard
    }

    /// Makes the victim send; returns its request, and the peer's handle of it.
    fn offered(&mut self, bytes: &[u8]) -> (Request, u64) {
        let request = self.victim.isend(self.peer, 1, bytes.to_vec()).unwrap();
        let offer = self.hear(0).unwrap();
        assert_eq!(
            (offer.tag, offer.body[1]),
            (PROCESS_OFFER, bytes.len() as u64)
        );
        (request, offer.body[2])
    }

    fn share(&mut self, handle: u64, target: u64, wanted: u64, epoch: u32, more: bool) {
        let body = [
            handle,
            handle + 100,
            target,
            wanted,
            epoch.into(),
            more.into(),
            0,
        ];
        self.say(1, PROCESS_SHARE, body);
    }

    fn offer(&mut self, bytes: &[u8], handle: u64) {
        let body = [1, bytes.len() as u64, handle, address(bytes), 0, 0, 0];
        self.say(0, PROCESS_OFFER, body);
    }

    fn ended(&mut self, request: Request) -> (Code, Vec<u8>) {
        let ended = self.victim.wait(request, HANG).unwrap().unwrap();
        (ended.status.code, ended.memory.bytes().to_vec())
    }
}

fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().addr() as u64
}

#[test]
fn a_sender_writes_its_halves_of_all_messages_of_an_epoch() {
    let mut rig = Rig::new(PROCESS_MEMORY);
    let sent = [1, 2, 3].map(|number| marked(SHORT, number));
    let offered = [0, 1, 2].map(|at| rig.offered(&sent[at]));
    let rooms = [(); 3].map(|()| vec![0; SHORT]);
    let epoch = rig.ends.claims_in.begin();
    assert_eq!(rig.ends.claims_in.consumer(epoch, 2).claim(), Ok(Some(0)));
    for (at, (_, handle)) in offered.iter().enumerate() {
        rig.share(*handle, address(&rooms[at]), SHORT as u64, epoch, at < 2);
    }
    for (_, handle) in offered {
        let copied = rig.hear(1).unwrap();
        assert_eq!(
            (copied.tag, &copied.body[..2]),
            (COPIED, &[handle + 100, 1][..])
        );
    }
    for (room, sent) in rooms.iter().zip(&sent) {
        let mut expected = sent.clone();
        expected[..HALF].fill(0);
        assert!(std::hint::black_box(room) == &expected);
    }
    for (request, handle) in offered {
        rig.say(1, DONE, [handle, SHORT as u64, 0, 0, 0, 0, 0]);
        assert_eq!(rig.ended(request).0, Code::Success);
    }
}

/// Receives of several messages of which the peer has claimed its halves.
struct Claimed {
    rig: Rig,
    requests: Vec<Request>,
    /// The peer's handles of the receives.
    handles: Vec<u64>,
    sent: Vec<Vec<u8>>,
}

impl Claimed {
    /// Repeats with a new link until the peer was in time to claim its halves.
    fn new() -> Self {
        loop {
            let mut rig = Rig::new(PROCESS_MEMORY);
            let sent: Vec<_> = (0..3).map(|number| marked(SHORT, number)).collect();
            let room = || vec![0; SHORT];
            let receive = |victim: &mut Endpoint| victim.irecv(Pattern::ANY, room()).unwrap();
            let requests: Vec<_> = sent.iter().map(|_| receive(&mut rig.victim)).collect();
            for (handle, bytes) in (0..).zip(&sent) {
                rig.offer(bytes, handle);
            }
            let is_claimed = rig.claim(1);
            let handles = (0..3).map(|handle| {
                let share = rig.next(1).unwrap();
                assert_eq!((share.tag, share.body[0]), (PROCESS_SHARE, handle));
                assert_eq!(share.body[5], u64::from(handle < 2), "more follow");
                share.body[1]
            });
            let handles = handles.collect();
            if is_claimed {
                return Self {
                    rig,
                    requests,
                    handles,
                    sent,
                };
            }
            for request in requests {
                assert_eq!(rig.ended(request).0, Code::Success);
                assert_eq!(rig.next(1).unwrap().tag, DONE);
            }
        }
    }

    fn report(&mut self, at: usize, pieces: u64) {
        let body = [self.handles[at], pieces, 0, 0, 0, 0, 0];
        self.rig.say(1, COPIED, body);
    }
}

impl Rig {
    /// Makes the victim copy; returns whether the peer claimed its halves in time.
    fn claim(&mut self, epoch: u32) -> bool {
        let mut claims = self.ends.claims_out.producer(epoch, 2);
        let victim = &mut self.victim;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let over = &over;
            let peer = scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    if claims.claim().unwrap().is_some() {
                        return true;
                    }
                }
                false
            });
            victim.progress();
            over.store(true, Ordering::Relaxed);
            peer.join().unwrap()
        })
    }
}

#[test]
fn messages_are_received_when_the_sender_has_reported_its_halves() {
    let mut claimed = Claimed::new();
    assert_eq!(claimed.rig.hear(1), None);
    for (at, request) in claimed.requests.clone().into_iter().enumerate() {
        assert!(claimed.rig.victim.test(request).unwrap().is_none());
        claimed.report(at, 1);
        let (code, bytes) = claimed.rig.ended(request);
        assert_eq!(code, Code::Success);
        assert!(bytes[..HALF] == claimed.sent[at][..HALF]);
        assert!(bytes[HALF..].iter().all(|byte| *byte == 0));
        assert_eq!(claimed.rig.next(1).unwrap().tag, DONE);
    }
}

#[test]
fn messages_are_streamed_if_the_sender_could_not_copy_its_halves() {
    let mut claimed = Claimed::new();
    claimed.report(0, u64::MAX);
    let pull = claimed.rig.hear(1).unwrap();
    assert_eq!(
        (pull.tag, &pull.body[..3]),
        (PULL, &[0, claimed.handles[0], SHORT as u64][..])
    );
}

#[test]
fn a_sender_that_reports_other_pieces_is_disconnected() {
    for pieces in [0, 2, 1 << 32] {
        let mut claimed = Claimed::new();
        claimed.report(1, pieces);
        for request in claimed.requests.clone() {
            assert_eq!(claimed.rig.ended(request).0, Code::Unreachable);
        }
    }
}

#[test]
fn memory_is_not_returned_while_the_sender_may_write_it() {
    let mut claimed = Claimed::new();
    let late = Duration::from_millis(100);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let (handles, peer) = (&claimed.handles, claimed.rig.peer);
        let Rig { victim, ends, .. } = &mut claimed.rig;
        scope.spawn(move || {
            std::thread::sleep(late);
            for handle in handles {
                let body = [*handle, 1, 0, 0, 0, 0, 0];
                ends.producers[1].push(&Record { tag: COPIED, body });
            }
        });
        victim.disconnect(peer).unwrap();
        assert!(start.elapsed() >= late);
    });
    assert!(start.elapsed() < late * 9, "the report must end the wait");
    for request in claimed.requests.clone() {
        assert_eq!(claimed.rig.ended(request).0, Code::Success);
    }
}

#[test]
fn a_sender_that_never_reports_delays_the_end_of_the_link_by_a_second() {
    let mut claimed = Claimed::new();
    let start = Instant::now();
    claimed.rig.victim.disconnect(claimed.rig.peer).unwrap();
    let delay = start.elapsed();
    assert!(
        (Duration::from_secs(1)..Duration::from_secs(5)).contains(&delay),
        "{delay:?}"
    );
    for request in claimed.requests.clone() {
        assert_eq!(claimed.rig.ended(request).0, Code::Closed);
    }
}

#[test]
fn a_message_that_its_sender_has_withdrawn_is_not_received() {
    // Short and long.
    for length in [SHORT, 1_000_003] {
        let mut rig = Rig::new(PROCESS_MEMORY);
        let sent = marked(length, 1);
        let request = rig.victim.irecv(Pattern::ANY, vec![0; length]).unwrap();
        rig.offer(&sent, 5);
        rig.ends.claims_out.withdraw();
        assert_eq!(rig.ended(request).0, Code::Closed);
    }
}

#[test]
fn an_offer_of_memory_that_is_not_mapped_is_streamed() {
    let mut rig = Rig::new(PROCESS_MEMORY);
    for (handle, address) in [
        (1, UNMAPPED),
        (2, 0),
        (3, u64::MAX),
        (4, u64::MAX - SHORT as u64),
    ] {
        for length in [SHORT as u64, 1_000_003] {
            let room = vec![0; length as usize];
            let _ = rig.victim.irecv(Pattern::ANY, room).unwrap();
            rig.say(0, PROCESS_OFFER, [1, length, handle, address, 0, 0, 0]);
            assert_eq!(rig.hear(1).unwrap().tag, PROCESS_SHARE);
            let pull = rig.hear(1).unwrap();
            assert_eq!(
                (pull.tag, pull.body[0], pull.body[2]),
                (PULL, handle, length)
            );
        }
    }
}

#[test]
fn a_sender_reports_that_it_cannot_write_and_streams() {
    let mut rig = Rig::new(PROCESS_MEMORY);
    let sent = marked(SHORT, 1);
    let (request, handle) = rig.offered(&sent);
    let epoch = rig.ends.claims_in.begin();
    rig.share(handle, UNMAPPED, SHORT as u64, epoch, false);
    let copied = rig.hear(1).unwrap();
    assert_eq!((copied.tag, copied.body[1]), (COPIED, u64::MAX));
    rig.say(1, PULL, [handle, handle + 100, SHORT as u64, 0, 0, 0, 0]);
    assert_eq!(rig.ended(request).0, Code::Success);
    assert_eq!(rig.next(1).unwrap().tag, CHUNK);
}

#[test]
fn a_false_share_ends_its_own_link_only() {
    let short = SHORT as u64;
    // The flags of the peer, the number of shares, and what it says of each: an offset of the handle, and the length.
    let cases = [
        (PROCESS_MEMORY, 1, 0, short, Code::Success),
        (PROCESS_MEMORY, COPIED_TOGETHER, 0, short, Code::Success),
        (0, 1, 0, short, Code::Unreachable),
        (
            PROCESS_MEMORY,
            COPIED_TOGETHER + 1,
            0,
            short,
            Code::Unreachable,
        ),
        (PROCESS_MEMORY, 1, 1 << 40, short, Code::Unreachable),
        (PROCESS_MEMORY, 1, 0, 0, Code::Unreachable),
        (PROCESS_MEMORY, 1, 0, short + 1, Code::Unreachable),
        (PROCESS_MEMORY, 1, 0, u64::MAX, Code::Unreachable),
    ];
    for (flags, count, wrong, wanted, expected) in cases {
        let code = answer(flags, count, SHORT, |handle| (handle + wrong, wanted));
        assert_eq!(code, expected, "{flags} {count} {wrong} {wanted}");
    }
    // Several long messages, and one twice.
    let long = 1 << 20;
    assert_eq!(
        answer(PROCESS_MEMORY, 1, long, |handle| (handle, long as u64)),
        Code::Success
    );
    assert_eq!(
        answer(PROCESS_MEMORY, 2, long, |handle| (handle, long as u64)),
        Code::Unreachable
    );
    let mut first = None;
    let twice = |handle| (*first.get_or_insert(handle), short);
    assert_eq!(answer(PROCESS_MEMORY, 2, SHORT, twice), Code::Unreachable);
}

/// Returns the result of the first of several sends whose receiver sends these shares of one epoch.
fn answer(
    flags: u8,
    count: usize,
    length: usize,
    mut share: impl FnMut(u64) -> (u64, u64),
) -> Code {
    let mut rig = Rig::new(flags);
    let sends: Vec<_> = (0..count)
        .map(|_| {
            let request = rig.victim.isend(rig.peer, 1, marked(length, 1)).unwrap();
            (request, rig.hear(0).unwrap().body[2])
        })
        .collect();
    let rooms: Vec<_> = sends.iter().map(|_| vec![0; length]).collect();
    let epoch = rig.ends.claims_in.begin();
    for (at, ((_, handle), room)) in sends.iter().zip(&rooms).enumerate() {
        let (handle, wanted) = share(*handle);
        rig.share(handle, address(room), wanted, epoch, at + 1 < count);
    }
    rig.victim.progress();
    for (_, handle) in &sends {
        rig.say(1, DONE, [*handle, length as u64, 0, 0, 0, 0, 0]);
    }
    rig.ended(sends[0].0).0
}
