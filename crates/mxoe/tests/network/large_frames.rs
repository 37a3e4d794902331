//! Large frames, and paths and hosts that do not take them.

use std::time::Duration;

use mxoe::limits::MAX_ORDINARY_FRAME;
use mxoe::wire::{Connect, Ends, Frame, Packet};
use mxoe::{Code, Message};

use super::net::{KEY, Network, at, frame, pattern};

/// Sends a medium and a large message, checks both, and returns the longest frame that carried bytes of them.
fn exchange(network: &mut Network) -> usize {
    network.sent.clear();
    for (value, length) in [(1, 30_000), (2, 200_000)] {
        network.send(0, 1, value, pattern(length, value)).unwrap();
    }
    match network.message(1) {
        Message::Whole { data, .. } => assert_eq!(data, pattern(30_000, 1)),
        other => panic!("{other:?}"),
    }
    let offer = network.offered(1);
    let now = network.now;
    let pull = network.nodes[1].pull(now, 3, offer, 200_000, 9).unwrap();
    let mut data = Vec::new();
    while data.len() < 200_000 {
        data.extend(network.until(|network| network.nodes[1].next_piece(network.now, 3, pull)));
    }
    assert_eq!(data, pattern(200_000, 2));
    let carries = |frame: &&Vec<u8>| {
        let frame = Frame::decode(frame).unwrap();
        matches!(frame.packet, Packet::Medium(_) | Packet::Reply(_))
    };
    let lengths = network.sent.iter().filter(carries).map(Vec::len);
    lengths.max().unwrap()
}

fn settle(network: &mut Network) {
    network.advance(Duration::from_secs(3));
}

#[test]
fn hosts_send_large_frames_where_they_arrive() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    assert_eq!(exchange(&mut network), 8240);
}

#[test]
fn a_path_without_large_frames_gets_none() {
    let mut network = Network::new(2, 500);
    network.impairment.longest = Some(MAX_ORDINARY_FRAME);
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    assert_eq!(exchange(&mut network), MAX_ORDINARY_FRAME);
    let probes = |network: &Network| {
        network
            .sent
            .iter()
            .filter(|sent| sent.len() == 8240)
            .count()
    };
    network.sent.clear();
    network.advance(Duration::from_secs(60));
    assert_eq!(probes(&network), 0, "the probes end");
}

#[test]
fn a_path_that_loses_its_large_frames_is_noticed() {
    let mut network = Network::new(2, 500);
    assert_eq!(network.connect(0, 1), Code::Success);
    settle(&mut network);
    network.impairment.longest = Some(MAX_ORDINARY_FRAME);
    exchange(&mut network);
    assert_eq!(exchange(&mut network), MAX_ORDINARY_FRAME);
}

/// Returns the reply to a connect with this announcement, and the frames that follow within some seconds.
fn answer_to(pipeline: Option<u8>) -> (Connect, Network) {
    let mut network = Network::new(2, 500);
    // The host that announces does not get the probes of the path.
    network.impairment.longest = Some(MAX_ORDINARY_FRAME);
    let connect = Connect {
        ends: Ends { to: 3, from: 3 },
        index: 0,
        session: 9,
        key_or_session: KEY,
        expected_seq: 1,
        number: 1,
        status: None,
        own_key: pipeline.map(|_| 7),
        pipeline,
        udp: None,
        program: None,
    };
    let frame = frame(0, 1, Packet::Connect(connect));
    network.nodes[1].receive(network.now, &frame);
    network.advance(Duration::from_secs(4));
    let sent = network.sent.iter().filter_map(|sent| Frame::decode(sent));
    let reply = sent.into_iter().find_map(|frame| match frame.packet {
        Packet::Connect(reply) if reply.status == Some(0) => Some(reply),
        _ => None,
    });
    (reply.unwrap(), network)
}

#[test]
fn other_hosts_get_the_frames_of_mx() {
    for (announced, answer) in [(None, None), (Some(0), Some(13)), (Some(12), Some(13))] {
        let (reply, network) = answer_to(announced);
        assert_eq!(reply.pipeline, answer, "{announced:?}");
        assert!(network.sent.iter().all(|sent| sent.len() < 8240));
    }
}

#[test]
fn an_announcement_beyond_any_frame_is_that_of_large_ones() {
    let (_, mut network) = answer_to(Some(255));
    let longest = network.sent.iter().map(Vec::len).max();
    assert_eq!(longest, Some(8240), "the probes of the path");
    // Nobody answered them.
    let now = network.now;
    let sent = network.nodes[1].send(now, 3, at(0, 3), (1, pattern(30_000, 1)), false, 1);
    sent.unwrap();
    network.sent.clear();
    network.collect_frames();
    let longest = network.sent.iter().map(Vec::len).max();
    assert_eq!(longest, Some(MAX_ORDINARY_FRAME));
}
