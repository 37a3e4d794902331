//! Replies to pulls in datagrams of UDP, and hosts and paths that do not take them.

use std::net::SocketAddr;
use std::time::Duration;

use mxoe::Code;
use mxoe::wire::{self, Connect, Frame, Packet};

use super::net::{KEY, Network, at, frame, mac, pattern, session, udp};

const LENGTH: u32 = 400_000;

/// Two connected nodes, of which those take datagrams for which `takes` returns true.
fn connected(takes: impl Fn(usize) -> bool) -> Network {
    let mut network = Network::with_udp(2, 500, |node| takes(node).then(|| udp(node)));
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    network
}

fn settle(network: &mut Network) {
    network.advance(Duration::from_secs(3));
}

fn replies<'a>(frames: impl Iterator<Item = &'a Vec<u8>>) -> usize {
    let is_reply =
        |frame: &&Vec<u8>| matches!(Frame::decode(frame).unwrap().packet, Packet::Reply(_));
    frames.filter(is_reply).count()
}

/// Sends a large message from a node to the other one, checks it, and returns how many replies came in frames and in datagrams.
fn exchange(network: &mut Network, from: usize) -> (usize, usize) {
    network.sent.clear();
    network.datagrams.clear();
    let to = 1 - from;
    network
        .send(from, to, 2, pattern(LENGTH as usize, 2))
        .unwrap();
    let offer = network.offered(to);
    let now = network.now;
    let pull = network.nodes[to].pull(now, 3, offer, LENGTH, 9).unwrap();
    let mut data = Vec::new();
    while data.len() < LENGTH as usize {
        data.extend(network.until(|network| network.nodes[to].next_piece(network.now, 3, pull)));
    }
    assert!(data == pattern(LENGTH as usize, 2));
    let datagrams = network.datagrams.iter().map(|(_, frame)| frame);
    (replies(network.sent.iter()), replies(datagrams))
}

#[test]
fn replies_travel_in_datagrams_where_both_hosts_take_them() {
    let mut network = connected(|_| true);
    for from in [0, 1] {
        assert_eq!(exchange(&mut network, from), (0, 49));
        assert!(network.datagrams.iter().all(|(to, _)| *to == udp(1 - from)));
    }
}

#[test]
fn a_host_that_takes_no_datagrams_gets_none() {
    for who in [0, 1] {
        let mut network = connected(|node| node == who);
        assert!(network.datagrams.is_empty());
        for from in [0, 1] {
            assert_eq!(exchange(&mut network, from), (49, 0));
        }
    }
}

#[test]
fn hosts_of_different_families_of_addresses_send_no_datagrams() {
    let v6 = SocketAddr::from(([0xfe80, 0, 0, 0, 0, 0, 0, 1], 4000));
    let mut network = Network::with_udp(2, 500, |node| Some(if node == 0 { v6 } else { udp(1) }));
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    assert!(network.datagrams.is_empty());
    assert_eq!(exchange(&mut network, 0), (49, 0));
}

#[test]
fn a_path_without_datagrams_gets_three_probes_and_frames() {
    let mut network = Network::with_udp(2, 500, |node| Some(udp(node)));
    network.impairment.no_datagrams = true;
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    // Three of each node.
    assert_eq!(network.datagrams.len(), 6);
    assert!(
        network
            .datagrams
            .iter()
            .all(|(_, frame)| frame.len() == 8240)
    );
    assert_eq!(exchange(&mut network, 0), (49, 0));
    network.datagrams.clear();
    network.advance(Duration::from_secs(60));
    assert!(network.datagrams.is_empty(), "the probes end");
}

#[test]
fn a_path_that_loses_its_datagrams_is_noticed() {
    let mut network = connected(|_| true);
    network.impairment.no_datagrams = true;
    let (frames, _) = exchange(&mut network, 0);
    assert!(frames > 0);
    assert_eq!(exchange(&mut network, 0), (49, 0));
}

#[test]
fn lost_datagrams_are_requested_again() {
    let mut network = connected(|_| true);
    network.impairment.loss = 10;
    let (_, datagrams) = exchange(&mut network, 0);
    assert!(datagrams > 49, "{datagrams}");
}

/// Returns a frame of a datagram that a node has sent, of those that `find` accepts.
fn a_datagram(network: &Network, find: impl Fn(&Packet<'_>) -> bool) -> Vec<u8> {
    let mut all = network.datagrams.iter().map(|(_, frame)| frame);
    let found = all.find(|frame| find(&Frame::decode(frame).unwrap().packet));
    found.unwrap().clone()
}

/// A user of the other host, or of any host, can send what the partner would send, but not from the partner's address.
#[test]
fn datagrams_from_another_address_than_the_partners_are_ignored() {
    let mut network = connected(|_| true);
    let probe = a_datagram(&network, |packet| matches!(packet, Packet::Connect(_)));
    let to = usize::from(probe[5] - 1);
    let ignored = |network: &Network| network.nodes[to].counters().ignored;
    let before = ignored(&network);
    let mut other_port = udp(1 - to);
    other_port.set_port(4001);
    let mut other_ip = udp(1 - to);
    other_ip.set_ip([10, 0, 0, 9].into());
    for (count, from) in (1..).zip([other_port, other_ip, udp(to)]) {
        network.nodes[to].receive_datagram(network.now, from, &probe);
        assert!(network.nodes[to].transmit().is_none(), "no answer");
        assert_eq!(ignored(&network), before + count);
    }
    network.nodes[to].receive_datagram(network.now, udp(1 - to), &probe);
    assert!(
        network.nodes[to].transmit().is_some(),
        "the subject of the test"
    );
}

/// Starts to pull a large message of node 0 at node 1, and returns the first request.
fn first_request(network: &mut Network) -> (mxoe::Pull, wire::Pull) {
    network.send(0, 1, 2, pattern(LENGTH as usize, 2)).unwrap();
    let offer = network.offered(1);
    let now = network.now;
    let pull = network.nodes[1].pull(now, 3, offer, LENGTH, 9).unwrap();
    let frame = network.nodes[1].transmit().unwrap();
    network.nodes[0].receive(now, &frame);
    match Frame::decode(&frame).unwrap().packet {
        Packet::Pull(request) => (pull, request),
        other => panic!("{other:?}"),
    }
}

/// A user that knows all but the address of the partner.
#[test]
fn a_forged_reply_to_a_pull_is_ignored() {
    let mut network = connected(|_| true);
    let (pull, request) = first_request(&mut network);
    let reply = wire::Reply {
        frame: 0,
        offset: 0,
        handle: request.handle,
        magic: request.magic,
        data: &[0xee; 8192],
    };
    let forged = frame(0, 1, Packet::Reply(reply));
    let mut from = udp(0);
    from.set_port(4001);
    network.nodes[1].receive_datagram(network.now, from, &forged);
    let mut data = Vec::new();
    while data.len() < LENGTH as usize {
        data.extend(network.until(|network| network.nodes[1].next_piece(network.now, 3, pull)));
    }
    assert!(data == pattern(LENGTH as usize, 2));
}

/// Otherwise a partner could make this host send data to any address on its links.
#[test]
fn another_address_of_a_partner_is_probed_before_data_is_sent_there() {
    let mut network = connected(|_| true);
    let probe = connect_of(&network);
    assert_eq!(exchange(&mut network, 0), (0, 49));
    let victim = SocketAddr::from(([10, 0, 0, 9], 4000));
    let connect = Connect {
        ends: wire::Ends { to: 3, from: 3 },
        session: session(1, 0),
        key_or_session: KEY,
        udp: Some(victim),
        ..probe
    };
    let frame = frame(1, 0, Packet::Connect(connect));
    network.nodes[0].receive(network.now, &frame);
    // The next connect of the partner itself has its own address.
    exchange(&mut network, 0);
    settle(&mut network);
    let to_victim = network.datagrams.iter().filter(|(to, _)| *to == victim);
    let to_victim: Vec<_> = to_victim.map(|(_, frame)| frame).collect();
    assert!((1..=3).contains(&to_victim.len()), "probes");
    assert_eq!(replies(to_victim.into_iter()), 0);
}

/// What a user may not do by a datagram, even from the partner's address: everything but replies and probes.
#[test]
fn a_datagram_carries_no_other_packets() {
    let mut network = connected(|_| true);
    let before = network.nodes[1].counters().ignored;
    let connect = Connect {
        status: Some(0),
        ..connect_of(&network)
    };
    let announce = Packet::Announce {
        nic: mac(0).nic(),
        serial: 77,
    };
    let query = Packet::HostQuery { index: 0, magic: 1 };
    for (count, packet) in (1..).zip([Packet::Connect(connect), announce, query]) {
        let frame = frame(0, 1, packet);
        network.nodes[1].receive_datagram(network.now, udp(0), &frame);
        assert_eq!(network.nodes[1].counters().ignored, before + count);
    }
    let mut for_another_host = a_datagram(&network, |packet| matches!(packet, Packet::Connect(_)));
    let (to, from) = (
        usize::from(for_another_host[5] - 1),
        usize::from(for_another_host[11] - 1),
    );
    for_another_host[5] = 9;
    let before = network.nodes[to].counters().ignored;
    network.nodes[to].receive_datagram(network.now, udp(from), &for_another_host);
    assert_eq!(network.nodes[to].counters().ignored, before + 1);
    assert!(network.nodes[1].transmit().is_none());
    assert_eq!(network.nodes[1].session(3, at(0, 3)), Some(1));
}

/// Returns the connect of a probe that was sent.
fn connect_of(network: &Network) -> Connect {
    let probe = a_datagram(network, |packet| matches!(packet, Packet::Connect(_)));
    match Frame::decode(&probe).unwrap().packet {
        Packet::Connect(connect) => connect,
        _ => unreachable!(),
    }
}

/// Returns how many blocks a node requests before any reply.
fn first_requests(network: &mut Network) -> usize {
    network.send(0, 1, 2, pattern(1_000_000, 2)).unwrap();
    let offer = network.offered(1);
    network.sent.clear();
    let now = network.now;
    network.nodes[1].pull(now, 3, offer, 1_000_000, 9).unwrap();
    network.collect_frames();
    let is_request =
        |frame: &&Vec<u8>| matches!(Frame::decode(frame).unwrap().packet, Packet::Pull(_));
    network.sent.iter().filter(is_request).count()
}

/// A sender without datagrams may be one of an earlier release, which keeps the bytes of eight blocks only.
#[test]
fn more_blocks_are_in_flight_with_a_host_that_takes_datagrams() {
    assert_eq!(first_requests(&mut connected(|_| true)), 16);
    assert_eq!(first_requests(&mut connected(|node| node == 1)), 8);
    assert_eq!(first_requests(&mut connected(|_| false)), 8);
}

/// The data of a reply stays in the message until the reply is sent.
#[test]
fn replies_of_a_message_that_has_ended_are_not_sent() {
    let mut network = connected(|_| true);
    let (_, request) = first_request(&mut network);
    let queued = |network: &Network| network.nodes[0].datagrams().count();
    assert_eq!(queued(&network), 4);
    let notify = wire::Notify {
        ends: request.ends,
        session: session(0, 0),
        total: LENGTH,
        region: request.region,
        generation: request.generation,
        seq: 1,
        ack: 1,
    };
    let frame = frame(1, 0, Packet::Notify(notify));
    network.nodes[0].receive(network.now, &frame);
    let ended = network.next_event(0);
    assert!(matches!(ended, Some(mxoe::Event::Sent { .. })), "{ended:?}");
    assert_eq!(queued(&network), 0);
    // Another message has the place of the first one.
    network.send(0, 1, 3, pattern(LENGTH as usize, 3)).unwrap();
    assert_eq!(queued(&network), 0);
    network.nodes[0].drop_old_datagrams();
    assert!(network.nodes[0].transmit().is_some());
}
