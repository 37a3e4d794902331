//! Endpoints that each have a key of their own, as MPI's ranks do.

use message::{Address, Code, Endpoint, Options, Pattern};

use crate::common::{HANG, until};
use crate::hosts::{Hosts, both, two_hosts};

const KEYS: [u32; 2] = [0x1111, 0x2222];

/// Connects that begin at the same time meet at different points of each other's handshake.
const ROUNDS: usize = 30;

fn open(hosts: &Hosts, place: usize) -> Endpoint {
    let options = Options {
        key: KEYS[place],
        ..Options::default()
    };
    Endpoint::open(&hosts.board(place), &options).unwrap()
}

/// Returns the result of a connect.
fn connect(a: &mut Endpoint, b: &mut Endpoint, key: u32) -> Code {
    let request = a.iconnect(b.address(), key, 0).unwrap();
    both(a, b, request).status.code
}

#[test]
fn a_peer_that_connected_first_is_connected_to_with_its_own_key() {
    let (hosts, ..) = two_hosts(None);
    let (mut a, mut b) = (open(&hosts, 0), open(&hosts, 1));
    assert_eq!(connect(&mut a, &mut b, KEYS[0]), Code::BadKey);
    assert_eq!(connect(&mut a, &mut b, KEYS[1]), Code::Success);
    assert_eq!(connect(&mut b, &mut a, KEYS[1]), Code::BadKey);
    assert_eq!(connect(&mut b, &mut a, KEYS[0]), Code::Success);
}

#[test]
fn endpoints_that_connect_to_each_other_at_the_same_time_take_each_others_keys() {
    let (hosts, ..) = two_hosts(None);
    for round in 0..ROUNDS {
        let (mut a, mut b) = (open(&hosts, 0), open(&hosts, 1));
        let to_b = a.iconnect(b.address(), KEYS[1], 0).unwrap();
        // The first connect is on its way for a while.
        for _ in 0..round * 10 {
            a.progress();
            b.progress();
            std::thread::yield_now();
        }
        let to_a = b.iconnect(a.address(), KEYS[0], 0).unwrap();
        let to_b = both(&mut a, &mut b, to_b).status.code;
        let to_a = both(&mut b, &mut a, to_a).status.code;
        assert_eq!([to_b, to_a], [Code::Success; 2], "round {round}");
    }
}

/// Open-MX does not send the key of the endpoint that connects, so any key is taken for the right one.
#[test]
fn a_host_that_does_not_send_its_key_is_connected_to_with_any_key() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    let options = Options {
        endpoint: Some(3),
        key: KEYS[0],
        ..Options::default()
    };
    let key = KEYS[0].to_string();
    hosts.python(1, "mxoe.py", &["mx", "5", "77", "3", &key]);
    until(" witness", || {
        hosts.knows(&hosts.runtime(0).join("message"), " witness")
    });
    let mut a = Endpoint::open(&hosts.board(0), &options).unwrap();
    let nic = hosts.board(0).find("witness");
    let address = Address { nic, endpoint: 5 };
    let first = a.irecv(Pattern::exactly(0), vec![0; 9]).unwrap();
    let got = a.wait(first, Some(HANG)).unwrap().unwrap();
    assert_eq!(got.memory.bytes(), b"connected");
    let peer = a.connect(address, KEYS[1], Some(HANG)).unwrap();
    assert_eq!(got.status.peer, Some(peer));
    let sent = a.isend(peer, 1, b"hello".to_vec()).unwrap();
    let back = a.irecv(Pattern::exactly(1), vec![0; 5]).unwrap();
    let got = a.wait(back, Some(HANG)).unwrap().unwrap();
    assert_eq!(got.memory.bytes(), b"hello");
    assert_eq!(
        a.wait(sent, Some(HANG)).unwrap().unwrap().status.code,
        Code::Success
    );
}
