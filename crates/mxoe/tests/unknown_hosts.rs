//! Any number of unknown hosts on the network: the memory and the output of a node stay within
//! their bounds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use mxoe::limits::{HOSTS, PARTNERS, RENAME_INTERVAL, SEND_QUEUE};
use mxoe::wire::{Connect, Ends, Frame, Mac, Packet};
use mxoe::{Config, Event, Node};

const HERE: Mac = Mac([2, 0, 0, 0, 0, 1]);

fn node() -> Node {
    Node::new(Config::new(HERE, "here", 1))
}

fn unknown_host(number: u32) -> Mac {
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
fn announced_hosts_that_do_not_exist_do_not_displace_a_real_host() {
    let mut node = node();
    let at = |number: u32| Duration::from_millis(u64::from(number));
    let count = u32::try_from(HOSTS).unwrap() * 2;
    for number in 0..count {
        announce(&mut node, at(number), unknown_host(number));
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    announce(&mut node, at(count), real);
    assert!(node.has_host(real));
    // Only the hosts that had been silent longest were replaced.
    assert!(!node.has_host(unknown_host(0)) && node.has_host(unknown_host(count - 1)));
}

#[test]
fn the_send_queue_of_a_host_is_bounded() {
    let mut node = node();
    let now = Duration::from_secs(1);
    for magic in 0..20_000 {
        let query = Packet::HostQuery { index: 0, magic };
        receive(&mut node, now, unknown_host(1), HERE, query);
    }
    let query = Packet::HostQuery { index: 0, magic: 7 };
    receive(&mut node, now, unknown_host(2), HERE, query);
    let mut sent = [0, 0];
    while let Some(frame) = node.transmit() {
        let to = Frame::decode(&frame).unwrap().destination;
        sent[usize::from(to == unknown_host(2))] += 1;
    }
    assert_eq!(sent, [SEND_QUEUE, 1]);
    // The frames were sent, so the queue has room again.
    receive(&mut node, now, unknown_host(1), HERE, query);
    assert!(node.transmit().is_some());
}

#[test]
fn name_changes_of_a_host_are_rate_limited() {
    let mut node = node();
    announce(&mut node, Duration::ZERO, unknown_host(1));
    let (mut renamed, mut asked) = (0, None);
    for tenth in 0..300u64 {
        let now = Duration::from_millis(100 * tenth);
        node.tick(now);
        while let Some(frame) = node.transmit() {
            if let Packet::HostQuery { magic, .. } = Frame::decode(&frame).unwrap().packet {
                asked = Some(magic);
            }
        }
        // With or without a new query.
        let (magic, name) = (asked.unwrap(), format!("name-{tenth}"));
        let name = name.as_bytes();
        let reply = Packet::HostReply {
            index: 0,
            magic,
            name,
        };
        receive(&mut node, now, unknown_host(1), HERE, reply);
        while let Some(event) = node.event() {
            renamed += u64::from(matches!(event, Event::Host { .. }));
        }
    }
    let most = 30 / RENAME_INTERVAL.as_secs() + 1;
    assert!((2..=most).contains(&renamed), "{renamed} of at most {most}");
}

/// A node with a peer_timeout of 20 s and an endpoint of key 7.
fn node_with_short_timeout() -> Node {
    let mut config = Config::new(HERE, "here", 1);
    config.peer_timeout = Duration::from_secs(20);
    let mut node = Node::new(config);
    node.open(Duration::ZERO, 3, 7, 1);
    node
}

/// Connects to endpoint 3 with its key. Returns whether the node answered.
fn connect(node: &mut Node, now: Duration, source: Mac, endpoint: u8) -> bool {
    let connect = Connect {
        ends: Ends {
            to: 3,
            from: endpoint,
        },
        index: 0,
        session: 9,
        key_or_session: 7,
        expected_seq: 1,
        number: 1,
        status: None,
        own_key: None,
        pipeline: None,
        udp: None,
        program: None,
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
fn silent_partners_give_way_to_a_new_partner() {
    let mut node = node_with_short_timeout();
    let mut now = Duration::ZERO;
    // As many partners as a node allows. They never send again.
    for number in 0..u32::try_from(PARTNERS).unwrap() {
        let endpoint = u8::try_from(number % 128).unwrap();
        assert!(connect(
            &mut node,
            now,
            unknown_host(number / 128),
            endpoint
        ));
        now += Duration::from_micros(1);
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    assert!(!connect(&mut node, now, real, 0), "all are connected");
    // The node probes them without an answer, and gives them up.
    now = pass_30_s(&mut node, now);
    assert!(connect(&mut node, now, real, 0));
    // The search for an unused partner is expensive, so a host with many endpoints gets one of them
    // connected each millisecond.
    assert!(!connect(&mut node, now, real, 1));
    assert!(connect(&mut node, now + Duration::from_millis(1), real, 1));
}

/// Runs the node's timers for 30 s, in which no host sends. Returns the time after that.
fn pass_30_s(node: &mut Node, mut now: Duration) -> Duration {
    let end = now + Duration::from_secs(30);
    while now < end {
        node.tick(now);
        while node.transmit().is_some() || node.event().is_some() {}
        now += Duration::from_millis(500);
    }
    now
}

#[test]
fn silent_hosts_give_way_to_a_new_host() {
    let mut node = node_with_short_timeout();
    let mut now = Duration::ZERO;
    for number in 0..u32::try_from(HOSTS).unwrap() {
        assert!(connect(&mut node, now, unknown_host(number), 0));
        now += Duration::from_micros(1);
    }
    let real = Mac([2, 9, 9, 9, 9, 9]);
    assert!(!connect(&mut node, now, real, 0), "all are connected");
    now = pass_30_s(&mut node, now);
    assert!(connect(&mut node, now, real, 0));
    assert!(node.has_host(real));
    // The host that was replaced is no longer a partner, and can connect again.
    now += Duration::from_millis(1);
    assert!(connect(&mut node, now, unknown_host(0), 0));
}
