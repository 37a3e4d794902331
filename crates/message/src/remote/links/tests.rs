use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::*;
use crate::remote::limits::LINKS;
use crate::remote::resources::Member;
use crate::remote::trunk::Trunk;

/// A switchboard with two members, and their ends of the trunks.
fn switchboard() -> (Switchboard, [Trunk; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let members = ["a", "b"].map(|name| Member {
        name: name.to_owned(),
        ..Member::default()
    });
    let mut board = Switchboard::new(folder.path(), &members).unwrap();
    let trunks = [0, 1].map(|number| {
        let seat = &mut board.seats[number];
        let window = board.halls[seat.link_pool]
            .region
            .trunk(seat.place)
            .unwrap();
        window.renew().unwrap();
        seat.begin(Trunk::new(window.ends(Side::Creator).unwrap()), 1);
        Trunk::new(window.ends(Side::Guest).unwrap())
    });
    (board, trunks)
}

/// What the first member calls its link.
const ID: LinkId = FROM_MEMBER | 1;

/// The first member connects to the second; returns what that calls the link.
fn connect(board: &mut Switchboard, b: &mut Trunk) -> LinkId {
    let address = |member: usize| Address {
        nic: board.seats[member].nic,
        endpoint: 1,
    };
    board.hear(0, ControlMessage::connects(ID, address(0), address(1)));
    let Ok(Some(ControlMessage::Connect { link, .. })) = b.hear() else {
        panic!("it was not told");
    };
    link
}

fn answer(link: LinkId, verdict: u32) -> ControlMessage {
    ControlMessage::Answer {
        link,
        window: 0,
        verdict,
        session: 2,
        seat: None,
    }
}

#[test]
fn without_memory_for_a_link_it_is_refused_and_no_gateway_is_to_blame() {
    let (mut board, [mut a, mut b]) = switchboard();
    let link = connect(&mut board, &mut b);
    // One that cannot be mapped.
    for link in board.links.values_mut() {
        link.ends[1].window = LINKS;
    }
    board.hear(1, answer(link, ACCEPTED));
    assert!(board.faulty.is_empty());
    assert_eq!(a.hear(), Ok(Some(answer(ID, FULL))));
    assert_eq!(b.hear(), Ok(Some(ControlMessage::Close { link })));
    board.hear(1, ControlMessage::Close { link });
    assert!(board.links.is_empty());
    assert!(board.seats.iter().all(|seat| seat.legs.is_empty()));
}

/// How often the first member's end of the link was told that the host sleeps, or is awake again.
fn told(board: &Switchboard) -> u32 {
    let end = board.links.values().next().unwrap().ends[0];
    let link_pool = &board.halls[board.seats[end.seat].link_pool];
    let window = link_pool.region.link(end.window).unwrap();
    let mut word = [0; 4];
    // The doorbell of a window's guest, see `window::layout`.
    window.scribble().unwrap().read(4096, &mut word).unwrap();
    u32::from_le_bytes(word)
}

#[test]
fn while_relays_are_busy_nobody_sleeps_and_sockets_have_their_turn() {
    let (mut board, [_a, mut b]) = switchboard();
    let link = connect(&mut board, &mut b);
    board.hear(1, answer(link, ACCEPTED));
    let (mut caller, called) = UnixStream::pair().unwrap();
    board.watch(&called).unwrap();
    caller.write_all(b"!").unwrap();
    // Busy for all of this test.
    board.moved = Some(Instant::now() + Duration::from_secs(3600));
    let mut turns = 0..3;
    board.serve(|_| turns.next().is_some()).unwrap();
    assert!(board.is_called());
    assert_eq!(told(&board), 0);
    board.moved = None;
    let mut turns = 0..3;
    board.serve(|_| turns.next().is_some()).unwrap();
    assert_eq!(told(&board), 6);
}
