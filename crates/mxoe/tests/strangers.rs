//! Strangers on the wire, as many as they like: a node keeps and sends no more than its bounds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use mxoe::limits::{HOSTS, PARTNERS, QUEUED, RENAME};
use mxoe::wire::{Connect, Ends, Frame, Mac, Packet};
use mxoe::{Config, Event, Node};

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn node() -> Node {
    Node::new(Config::new(HERE, "here", 1))
}

fn stranger(number: u32) -> Mac {
    let [a, b, c, d] = number.to_be_bytes();
    Mac([2, 1, a, b, c, d])
}

fn receive(node: &mut Node, now: Duration, source: Mac, destination: Mac, packet: Packet<'_>) {
    let frame = Frame {
        destination,
        source,
        index: 0,
        packet,
    };
    node.receive(now, &frame.encode());
}

fn announce(node: &mut Node, now: Duration, source: Mac) {
    let nic = source.nic();
    receive(
        node,
        now,
        source,
        Mac::BROADCAST,
        Packet::Announce { nic, serial: 1 },
    );
}

#[test]
fn announced_hosts_that_do_not_exist_keep_no_place_from_one_that_does() {
    let mut node = node();
    let at = |number: u32| Duration::from_millis(u64::from(number));
    let count = u32::try_from(HOSTS).unwrap() * 2;
    for number in 0..count {
        announce(&mut node, at(number), stranger(number));
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    announce(&mut node, at(count), real);
    assert!(node.knows(real));
    // Only those that had been silent longest are gone.
    assert!(!node.knows(stranger(0)) && node.knows(stranger(count - 1)));
}

#[test]
fn what_waits_for_a_host_that_asks_and_asks_is_bounded() {
    let mut node = node();
    let now = Duration::from_secs(1);
    for magic in 0..20_000 {
        let query = Packet::HostQuery { index: 0, magic };
        receive(&mut node, now, stranger(1), HERE, query);
    }
    let query = Packet::HostQuery { index: 0, magic: 7 };
    receive(&mut node, now, stranger(2), HERE, query);
    let mut sent = [0, 0];
    while let Some(frame) = node.transmit() {
        let to = Frame::decode(&frame).unwrap().destination;
        sent[usize::from(to == stranger(2))] += 1;
    }
    assert_eq!(sent, [QUEUED, 1]);
    // Those are sent: there is room again.
    receive(&mut node, now, stranger(1), HERE, query);
    assert!(node.transmit().is_some());
}

#[test]
fn a_host_that_changes_its_name_all_the_time_is_renamed_now_and_then() {
    let mut node = node();
    announce(&mut node, Duration::ZERO, stranger(1));
    let (mut renamed, mut asked) = (0, None);
    for tenth in 0..300u64 {
        let now = Duration::from_millis(100 * tenth);
        node.tick(now);
        while let Some(frame) = node.transmit() {
            if let Packet::HostQuery { magic, .. } = Frame::decode(&frame).unwrap().packet {
                asked = Some(magic);
            }
        }
        // As often as it likes, asked or not.
        let (magic, name) = (asked.unwrap(), format!("name-{tenth}"));
        let name = name.as_bytes();
        let reply = Packet::HostReply {
            index: 0,
            magic,
            name,
        };
        receive(&mut node, now, stranger(1), HERE, reply);
        while let Some(event) = node.event() {
            renamed += u64::from(matches!(event, Event::Host { .. }));
        }
    }
    let most = 30 / RENAME.as_secs() + 1;
    assert!((2..=most).contains(&renamed), "{renamed} of at most {most}");
}

/// A node that soon gives up who is silent, with an endpoint of key 7.
fn impatient() -> Node {
    let mut config = Config::new(HERE, "here", 1);
    config.patience = Duration::from_secs(20);
    let mut node = Node::new(config);
    node.open(Duration::ZERO, 3, 7, 1);
    node
}

/// Connect to endpoint 3 with its key, and say whether that was answered.
fn connect(node: &mut Node, now: Duration, source: Mac, endpoint: u8) -> bool {
    let connect = Connect {
        ends: Ends {
            to: 3,
            from: endpoint,
        },
        index: 0,
        session: 9,
        word: 7,
        start: 0,
        number: 1,
        status: None,
    };
    receive(node, now, source, HERE, Packet::Connect(connect));
    let mut answered = false;
    while let Some(frame) = node.transmit() {
        let frame = Frame::decode(&frame).unwrap();
        answered |= frame.destination == source && matches!(frame.packet, Packet::Connect(_));
    }
    while node.event().is_some() {}
    answered
}

#[test]
fn partners_that_are_silent_keep_no_place_from_one_that_is_there() {
    let mut node = impatient();
    let mut now = Duration::ZERO;
    // As many as there may be, and they are never heard of again.
    for number in 0..u32::try_from(PARTNERS).unwrap() {
        let endpoint = u8::try_from(number % 128).unwrap();
        assert!(connect(&mut node, now, stranger(number / 128), endpoint));
        now += Duration::from_micros(1);
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    assert!(!connect(&mut node, now, real, 0), "all are connected");
    // Asked in vain, and given up.
    let end = now + Duration::from_secs(30);
    while now < end {
        node.tick(now);
        while node.transmit().is_some() || node.event().is_some() {}
        now += Duration::from_millis(500);
    }
    assert!(connect(&mut node, now, real, 0));
    // To look for a place costs: a host that comes with many has one in a millisecond.
    assert!(!connect(&mut node, now, real, 1));
    assert!(connect(&mut node, now + Duration::from_millis(1), real, 1));
}

#[test]
fn hosts_that_connected_once_and_are_gone_keep_no_place_from_one_that_is_there() {
    let mut node = impatient();
    let mut now = Duration::ZERO;
    for number in 0..u32::try_from(HOSTS).unwrap() {
        assert!(connect(&mut node, now, stranger(number), 0));
        now += Duration::from_micros(1);
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    assert!(!connect(&mut node, now, real, 0), "all are connected");
    let end = now + Duration::from_secs(30);
    while now < end {
        node.tick(now);
        while node.transmit().is_some() || node.event().is_some() {}
        now += Duration::from_millis(500);
    }
    assert!(connect(&mut node, now, real, 0));
    assert!(node.knows(real));
    // Whoever had the place before is nobody's partner any more, and can come again.
    now += Duration::from_millis(1);
    assert!(connect(&mut node, now, stranger(0), 0));
}
