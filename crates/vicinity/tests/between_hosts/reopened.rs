//! Programs that end, and others that open the same endpoint at once.

use std::collections::HashSet;

use message::{Code, Endpoint, Options, Pattern, Status};

use crate::common::HANG;
use crate::hosts::{Hosts, both, two_hosts};

const PROGRAMS: u64 = 12;

/// Messages of each program. It ends before the other host has acknowledged them.
const MESSAGES: u64 = 20;

const LENGTH: usize = 40;

fn open(hosts: &Hosts, place: usize, endpoint: u32, key: u32) -> Endpoint {
    let options = Options {
        endpoint: Some(endpoint),
        key,
        ..Options::default()
    };
    Endpoint::open(&hosts.board(place), &options).unwrap()
}

fn receive(endpoint: &mut Endpoint) -> Status {
    let receive = endpoint.irecv(Pattern::ANY, vec![0; LENGTH]).unwrap();
    let got = endpoint.wait(receive, Some(HANG)).unwrap();
    got.unwrap().status
}

#[test]
fn a_program_with_the_endpoint_of_an_ended_one_is_another_peer_and_no_message_is_lost() {
    let (hosts, first, mut b) = two_hosts(Some(["0", "0", "3"]));
    drop(first);
    for program in 0..PROGRAMS {
        let mut a = open(&hosts, 0, 5, 0);
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
        let got = receive(&mut b);
        assert_eq!((got.code, got.value), (Code::Success, value));
        peers.insert(got.peer.unwrap());
    }
    assert_eq!(peers.len() as u64, PROGRAMS);
}

/// More messages than fit into the memory that the receiver shares with its daemon, and fewer than the sender's daemon takes besides.
const UNTAKEN: u64 = 330;

/// Each program has a key of its own, as MPI's ranks do. The receiver computes, so the messages of the ended program are not acknowledged.
#[test]
fn the_next_program_with_an_endpoint_need_not_wait_for_the_messages_of_the_last() {
    let (hosts, _, mut b) = two_hosts(None);
    let mut a = open(&hosts, 0, 5, 1);
    let request = a.iconnect(b.address(), 0, 0).unwrap();
    let to_b = both(&mut a, &mut b, request).status.peer.unwrap();
    for value in 0..UNTAKEN {
        let sent = a.isend(to_b, value, vec![0; LENGTH]).unwrap();
        let sent = a.wait(sent, Some(HANG)).unwrap().unwrap().status;
        assert_eq!(sent.code, Code::Success);
    }
    drop(a);
    let (mut next, mut c) = (open(&hosts, 0, 5, 2), open(&hosts, 1, 6, 3));
    let mut connect = |from: usize, key| {
        let [one, other] = match from {
            0 => [&mut next, &mut c],
            _ => [&mut c, &mut next],
        };
        let request = one.iconnect(other.address(), key, 0).unwrap();
        both(one, other, request).status.code
    };
    assert_eq!(connect(1, 1), Code::BadKey);
    assert_eq!(connect(1, 2), Code::Success);
    assert_eq!(connect(0, 3), Code::Success);
    let request = next.iconnect(b.address(), 0, 0).unwrap();
    for value in 0..UNTAKEN {
        let got = receive(&mut b);
        assert_eq!((got.code, got.value), (Code::Success, value));
    }
    assert_eq!(both(&mut next, &mut b, request).status.code, Code::Success);
}
