//! Endpoints of two hosts, which are network namespaces with an Ethernet link between them: real
//! uplinks, real frames. Needs root, `ip` and `python3`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod beside_daemon;
mod datagrams;
mod hostile;
mod hosts;
mod in_process;
mod introductions;
mod keys;
mod offered_interface;
mod processor;
mod programs;
mod reopened;
mod shared_interface;
mod uplink;

use std::time::Duration;

use common::{HANG, until};
use message::{Address, Code, Endpoint, Pattern};

use hosts::{Hosts, LENGTHS, both, connect, connect_again, exchange, pattern, two_hosts};

#[test]
fn endpoints_of_two_hosts_exchange_every_length_both_ways() {
    let (hosts, mut a, mut b) = two_hosts(None);
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
    exchange(&mut b, &mut a, to_a);
    // A receiver with a buffer that is too small: if the message is large, both sides learn how
    // many bytes the receiver took.
    for (length, taken) in [(1000, 1000), (100_000, 10)] {
        let sent = a.isend(to_b, 1, pattern(length, 1)).unwrap();
        let receive = b.irecv(Pattern::ANY, vec![0; 10]).unwrap();
        let got = both(&mut b, &mut a, receive).status;
        assert_eq!((got.code, got.taken), (Code::Truncated, 10));
        assert_eq!(both(&mut a, &mut b, sent).status.taken, taken);
    }
    // A connect without the key fails, and so does one to an endpoint that does not exist.
    let address = b.address();
    let mut other = hosts.open(0, " beta");
    let refused = other.iconnect(address, 5, 0).unwrap();
    assert_eq!(both(&mut other, &mut b, refused).status.code, Code::BadKey);
    let nobody = Address {
        endpoint: 99,
        ..address
    };
    let refused = other.iconnect(nobody, 0, 0).unwrap();
    assert_eq!(both(&mut other, &mut b, refused).status.code, Code::Closed);
    let nowhere = Address {
        nic: address.nic ^ 0x00ff_0000,
        ..address
    };
    let refused = other.iconnect(nowhere, 0, 0).unwrap();
    assert_eq!(both(&mut other, &mut b, refused).status.code, Code::Unknown);
    // Messages sent before an endpoint closed arrive; requests that wait for the endpoint end.
    let last = b.isend(to_a, 9, pattern(3000, 9)).unwrap();
    assert!(b.test(last).unwrap().is_some());
    let waits = a.issend(to_b, 2, pattern(100_000, 2)).unwrap();
    drop(b);
    let receive = a.irecv(Pattern::exactly(9), vec![0; 3000]).unwrap();
    let got = both(&mut a, &mut other, receive);
    assert_eq!(got.memory.bytes(), pattern(3000, 9));
    let ended = both(&mut a, &mut other, waits).status.code;
    assert_eq!(ended, Code::Closed);
}

#[test]
fn endpoints_of_two_hosts_through_loss_doubling_and_reordering() {
    let (hosts, mut a, mut b) = two_hosts(Some(["3", "5", "3"]));
    let (to_b, to_a) = connect(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
    exchange(&mut b, &mut a, to_a);
    // The uplinks recovered lost frames, which each side counts.
    let counted = |place: usize, key: &str| hosts.counters(place)["uplink"][key].as_u64().unwrap();
    for place in [0, 1] {
        until("the uplink's counters", || {
            ["sent", "received"]
                .iter()
                .all(|key| counted(place, key) > 500)
                && counted(place, "repeated_pulls") > 0
        });
    }
}

#[test]
fn a_receiver_that_does_not_take_holds_back_a_sender_on_another_host() {
    const COUNT: u64 = 2000;
    const LENGTH: usize = 30_000;
    let (_hosts, mut a, mut b) = two_hosts(None);
    let (to_b, _) = connect(&mut a, &mut b);
    // More messages than an endpoint buffers for a peer: they do not all fit, however long the
    // sender tries.
    let send = |a: &mut Endpoint, value| a.isend(to_b, value, pattern(LENGTH, value)).unwrap();
    let sent: Vec<_> = (0..COUNT).map(|value| send(&mut a, value)).collect();
    let end = std::time::Instant::now() + Duration::from_secs(7);
    while std::time::Instant::now() < end {
        // The receiver is reachable and answers, but its buffers are full. So the sender does not
        // give it up.
        b.progress();
        a.progress();
        std::thread::yield_now();
    }
    assert!(!a.is_ended(*sent.last().unwrap()).unwrap());
    for value in 0..COUNT {
        let receive = b.irecv(Pattern::ANY, vec![0; LENGTH]).unwrap();
        let got = both(&mut b, &mut a, receive);
        assert_eq!((got.status.code, got.status.value), (Code::Success, value));
        assert_eq!(got.memory.bytes(), pattern(LENGTH, value));
    }
    for request in sent {
        assert_eq!(both(&mut a, &mut b, request).status.code, Code::Success);
    }
}

#[test]
fn a_host_that_stops_is_given_up_and_can_connect_again() {
    let mut hosts = Hosts::new(false);
    hosts.serve(0);
    let other = hosts.serve(1);
    let (mut a, mut b) = (hosts.open(0, " beta"), hosts.open(1, " alpha"));
    let (to_b, _) = connect(&mut a, &mut b);
    let waits = a.issend(to_b, 1, pattern(100_000, 1)).unwrap();
    hosts.children[other].kill().unwrap();
    hosts.children[other].wait().unwrap();
    drop(b);
    let ended = a.wait(waits, Some(HANG)).unwrap().unwrap();
    assert_eq!(ended.status.code, Code::Unreachable);
    hosts.serve(1);
    let mut b = hosts.open(1, " alpha");
    let (to_b, _) = connect_again(&mut a, &mut b);
    exchange(&mut a, &mut b, to_b);
}

#[test]
fn an_independent_host_talks_to_an_endpoint() {
    let mut hosts = Hosts::new(true);
    hosts.wire("2", "3", "2");
    hosts.serve(0);
    hosts.python(1, "mxoe.py", &["mx", "5", "77"]);
    let mut a = hosts.open(0, " witness");
    let nic = hosts.board(0).find("witness");
    let to = Address { nic, endpoint: 5 };
    let peer = a.connect(to, 77, Some(HANG)).unwrap();
    for (value, length) in (0..).zip(LENGTHS) {
        let bytes = pattern(length, value);
        let sent = a.isend(peer, value, bytes.clone()).unwrap();
        let back = a.irecv(Pattern::exactly(value), vec![0; length]).unwrap();
        let got = a.wait(back, Some(HANG)).unwrap().unwrap();
        assert_eq!(got.memory.bytes(), bytes, "{length} bytes");
        let sent = a.wait(sent, Some(HANG)).unwrap().unwrap();
        assert_eq!(sent.status.code, Code::Success);
    }
}
