//! Programs that end, and others that open the same endpoint at once.

use std::collections::HashSet;

use message::{Code, Endpoint, Options, Pattern};

use crate::common::HANG;
use crate::hosts::{both, two_hosts};

const PROGRAMS: u64 = 12;

/// Messages of each program. It ends before the other host has acknowledged them.
const MESSAGES: u64 = 20;

const LENGTH: usize = 40;

#[test]
fn a_program_with_the_endpoint_of_an_ended_one_is_another_peer_and_no_message_is_lost() {
    let (hosts, first, mut b) = two_hosts(Some(["0", "0", "3"]));
    drop(first);
    let options = Options {
        endpoint: Some(5),
        ..Options::default()
    };
    for program in 0..PROGRAMS {
        let mut a = Endpoint::open(&hosts.board(0), &options).unwrap();
        let request = a.iconnect(b.address(), 0, 0).unwrap();
        let connected = both(&mut a, &mut b, request).status;
        assert_eq!(connected.code, Code::Success, "program {program}");
        for number in 0..MESSAGES {
            let value = program * MESSAGES + number;
            let peer = connected.peer.unwrap();
            let sent = a.isend(peer, value, vec![0; LENGTH]).unwrap();
            assert!(a.is_ended(sent).unwrap());
        }
    }
    let mut peers = HashSet::new();
    for value in 0..PROGRAMS * MESSAGES {
        let receive = b.irecv(Pattern::ANY, vec![0; LENGTH]).unwrap();
        let got = b.wait(receive, Some(HANG)).unwrap().unwrap().status;
        assert_eq!((got.code, got.value), (Code::Success, value));
        peers.insert(got.peer.unwrap());
    }
    assert_eq!(peers.len() as u64, PROGRAMS);
}
