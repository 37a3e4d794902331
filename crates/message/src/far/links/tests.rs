use super::*;
use crate::far::LINKS;
use crate::far::switchboard::Member;
use crate::far::trunk::Trunk;

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
        let window = board.halls[seat.hall].region.trunk(seat.place).unwrap();
        window.renew().unwrap();
        seat.begin(Trunk::new(window.ends(Side::Creator).unwrap()), 1);
        Trunk::new(window.ends(Side::Guest).unwrap())
    });
    (board, trunks)
}

#[test]
fn without_memory_for_a_link_it_is_refused_and_no_gateway_is_to_blame() {
    let (mut board, [mut a, mut b]) = switchboard();
    let address = |member: usize| Address {
        nic: board.seats[member].nic,
        endpoint: 1,
    };
    let hello = Hello {
        from: address(0),
        to: address(1),
        session: 1,
        own_key: 0,
        key: 0,
        fences: false,
        seats: None,
    };
    let id = FROM_MEMBER | 1;
    let connect = Note::Connect {
        link: id,
        window: 0,
        hello,
        seat: None,
    };
    board.hear(0, connect);
    let Ok(Some(Note::Connect { link, .. })) = b.hear() else {
        panic!("it was not told");
    };
    // One that cannot be mapped.
    for link in board.links.values_mut() {
        link.ends[1].window = LINKS;
    }
    let answer = |link, verdict| Note::Answer {
        link,
        window: 0,
        verdict,
        session: 2,
        seat: None,
    };
    board.hear(1, answer(link, ACCEPTED));
    assert!(board.faulty.is_empty());
    assert_eq!(a.hear(), Ok(Some(answer(id, FULL))));
    assert_eq!(b.hear(), Ok(Some(Note::Close { link })));
    board.hear(1, Note::Close { link });
    assert!(board.links.is_empty());
    assert!(board.seats.iter().all(|seat| seat.legs.is_empty()));
}
