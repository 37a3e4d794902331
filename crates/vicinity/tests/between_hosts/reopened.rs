//! Programs that end, and others that open the same endpoint at once.

use std::collections::HashSet;
use std::time::Instant;

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

/// Connects to an endpoint by this key.
fn connect(one: &mut Endpoint, other: &mut Endpoint, key: u32) -> Status {
    let request = one.iconnect(other.address(), key, 0).unwrap();
    both(one, other, request).status
}

/// Connects to an endpoint by the key of the program that had it before, until that is refused: the daemon may not know yet that this program has
/// ended. Until then, no program gets a message of such a connection.
fn refusal(one: &mut Endpoint, other: &mut Endpoint, key: u32) -> Code {
    let end = Instant::now() + HANG;
    loop {
        assert!(Instant::now() < end, "the key is still known");
        let status = connect(one, other, key);
        let Some(to_ended) = status.peer.filter(|_| status.code == Code::Success) else {
            return status.code;
        };
        let sent = one.issend(to_ended, 7, vec![0; LENGTH]).unwrap();
        let lost = both(one, other, sent).status.code;
        assert!(
            [Code::Closed, Code::Unreachable].contains(&lost),
            "{lost:?}"
        );
    }
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

/// Opens endpoint 5 with key 1, and sends these messages, which the receiver does not take.
fn sender_of_untaken(hosts: &Hosts, receiver: &mut Endpoint) -> Endpoint {
    let mut sender = open(hosts, 0, 5, 1);
    let to_receiver = connect(&mut sender, receiver, 0).peer.unwrap();
    for value in 0..UNTAKEN {
        let sent = sender.isend(to_receiver, value, vec![0; LENGTH]).unwrap();
        let sent = sender.wait(sent, Some(HANG)).unwrap().unwrap().status;
        assert_eq!(sent.code, Code::Success);
    }
    sender
}

/// Each program has a key of its own, as MPI's ranks do. The receiver computes, so the messages of the ended program are not acknowledged.
#[test]
fn the_next_program_with_an_endpoint_need_not_wait_for_the_messages_of_the_last() {
    let (hosts, _, mut b) = two_hosts(None);
    drop(sender_of_untaken(&hosts, &mut b));
    let (mut next, mut c) = (open(&hosts, 0, 5, 2), open(&hosts, 1, 6, 3));
    assert_eq!(refusal(&mut c, &mut next, 1), Code::BadKey);
    assert_eq!(connect(&mut c, &mut next, 2).code, Code::Success);
    assert_eq!(connect(&mut next, &mut c, 3).code, Code::Success);
    let request = next.iconnect(b.address(), 0, 0).unwrap();
    for value in 0..UNTAKEN {
        let got = receive(&mut b);
        assert_eq!((got.code, got.value), (Code::Success, value));
    }
    assert_eq!(both(&mut next, &mut b, request).status.code, Code::Success);
}

/// The daemon accepts a connect by the key that it knows, and passes it on to the program. That has not answered when it ends.
#[test]
fn an_unanswered_connect_keeps_no_key_of_an_ended_program() {
    let (hosts, _, mut b) = two_hosts(None);
    let a = sender_of_untaken(&hosts, &mut b);
    let mut c = open(&hosts, 1, 6, 3);
    let request = c.iconnect(a.address(), 1, 0).unwrap();
    let connected = c.wait(request, Some(HANG)).unwrap().unwrap();
    assert_eq!(connected.status.code, Code::Success);
    drop(a);
    let mut next = open(&hosts, 0, 5, 2);
    assert_eq!(refusal(&mut c, &mut next, 1), Code::BadKey);
    assert_eq!(connect(&mut c, &mut next, 2).code, Code::Success);
}
