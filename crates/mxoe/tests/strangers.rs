//! Strangers on the wire, as many as they like: a node keeps and sends no more than its bounds.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use mxoe::limits::{HOSTS, QUEUED, RENAME};
use mxoe::wire::{Frame, Mac, Packet};
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
