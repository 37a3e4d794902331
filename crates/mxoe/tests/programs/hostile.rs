//! What a node whose frames all travel in datagrams does not take: what is not from the address of a known partner. And what such a partner
//! cannot do.

use std::time::Duration;

use mxoe::wire::{Connect, Ends, Frame, Mac, NO_INDEX, Packet};
use mxoe::{Address, Code, Event, Message, Node};

use super::frames::{KEY, at, mac, pattern, session};
use super::network::{PLACES, Programs, connected, udp};

/// Connected programs of which the first one has sent packets of all kinds to the second one, which has not received the last ones.
fn with_all_packets() -> (Programs, Vec<Vec<u8>>) {
    let mut programs = Programs::new(3, |_, _| {});
    programs.connect(0, 1);
    for (from, to) in [(0, 1), (1, 0)] {
        for (value, length) in [(0, 5), (1, 5000), (2, 100_000)] {
            programs.send(from, to, value, pattern(length, value));
            assert_eq!(programs.receive(to, from).0, value);
        }
    }
    // Refusals of a message and of a pull.
    programs.send(1, 0, 3, pattern(100_000, 3));
    let offer = programs.offered(0, 1);
    programs.advance(Duration::from_millis(20));
    programs.disconnect(1, 3, at(0, 3));
    let now = programs.now;
    programs.node(0).pull(now, 3, offer, 100_000, 3).unwrap();
    programs.send(0, 1, 4, vec![4]);
    programs.advance(Duration::from_millis(20));
    let sent = programs.sent.iter().map(|(_, frame)| frame.clone());
    let mut kinds: Vec<Vec<u8>> = Vec::new();
    for frame in sent {
        if !kinds.iter().any(|other| other[16] == frame[16]) {
            kinds.push(frame);
        }
    }
    let seen: Vec<_> = kinds.iter().map(|frame| frame[16]).collect();
    for kind in 35..=45 {
        // Of the short messages, there is one kind.
        assert!(kind == 38 || seen.contains(&kind), "{kind} of {seen:?}");
    }
    (programs, kinds)
}

fn is_silent(node: &mut Node) -> bool {
    let nothing = node.event().is_none() && node.transmit().is_none();
    nothing && node.datagrams().next().is_none()
}

/// Two programs again, with a pull of each from the other one in progress.
fn pulling() -> Programs {
    let mut programs = Programs::new(3, |_, _| {});
    programs.connect(0, 1);
    programs.connect(0, 2);
    for (from, to) in [(0, 1), (1, 0)] {
        programs.send(from, to, 3, pattern(100_000, 3));
        let offer = programs.offered(to, from);
        let now = programs.now;
        programs.loses = |_, packet| matches!(packet, Packet::Reply(_));
        programs.node(to).pull(now, 3, offer, 100_000, 3).unwrap();
    }
    programs.advance(Duration::from_millis(10));
    programs.events(0);
    programs.events(1);
    programs
}

#[test]
fn datagrams_from_another_address_are_ignored() {
    let (_, kinds) = with_all_packets();
    let mut programs = pulling();
    let mut other_port = udp(0);
    other_port.set_port(4001);
    let mut other_ip = udp(0);
    other_ip.set_ip([10, 0, 0, 9].into());
    for frame in kinds {
        // With the header of a frame from program 0 to program 1.
        let mut frame = frame;
        frame[..6].copy_from_slice(&mac(1).0);
        frame[6..12].copy_from_slice(&mac(0).0);
        for from in [other_port, other_ip, udp(1), udp(2)] {
            let now = programs.now;
            let node = programs.node(1);
            let before = node.counters().ignored;
            node.receive_datagram(now, from, &frame);
            assert_eq!(node.counters().ignored, before + 1, "{}", frame[16]);
            assert!(is_silent(node), "{}", frame[16]);
        }
        // Also a network of frames does not exist.
        let node = programs.node(1);
        let before = node.counters().ignored;
        node.receive(Duration::from_secs(9), &frame);
        assert_eq!(node.counters().ignored, before + 1);
        assert!(is_silent(node), "{}", frame[16]);
    }
}

/// Program 2 has the MAC address of program 1.
#[test]
fn a_partner_cannot_take_the_endpoint_of_another_one() {
    let mut programs = pulling();
    let sent = std::mem::take(&mut programs.sent);
    let (mut kinds, now) = (0u64, programs.now);
    programs.loses = super::network::none_is_lost;
    for (_, frame) in sent.iter().filter(|(from, _)| *from == 1) {
        let node = programs.node(0);
        let before = node.counters().ignored;
        node.receive_datagram(now, udp(2), frame);
        assert_eq!(node.counters().ignored, before + 1);
        assert!(is_silent(node));
        kinds |= 1 << frame[16];
    }
    for kind in [36, 40, 41, 42] {
        assert!(kinds & 1 << kind != 0, "{kind}");
    }
    // Refusals in the name of the other endpoint.
    let ends = Ends { to: 3, from: 3 };
    let handles = sent
        .iter()
        .filter_map(|(_, frame)| match Frame::decode(frame).unwrap().packet {
            Packet::Pull(pull) => Some((pull.handle, pull.magic)),
            _ => None,
        });
    let nack = |code| Packet::Nack {
        ends,
        code,
        index: 0,
        seq: 0,
    };
    let mut forged = vec![nack(1), nack(2), nack(3)];
    for (handle, magic) in handles {
        forged.push(Packet::PullNack {
            from: 3,
            code: 4,
            handle,
            magic,
        });
        // With its own number, it is no refusal of that pull.
        forged.push(Packet::PullNack {
            from: 4,
            code: 4,
            handle,
            magic,
        });
    }
    for packet in forged {
        let frame = Frame {
            destination: mac(0),
            source: mac(1),
            index: 0,
            packet,
        };
        let node = programs.node(0);
        node.receive_datagram(now, udp(2), &frame.encode());
        assert!(is_silent(node), "{packet:?}");
    }
    // The pull goes on.
    programs.advance(Duration::from_secs(3));
    assert!(programs.session(0, 1).is_some() && programs.session(1, 0).is_some());
    assert_eq!((programs.events(0), programs.events(1)), (vec![], vec![]));
}

fn request(key: u32, own_key: Option<u32>) -> Connect {
    Connect {
        ends: Ends { to: 3, from: 3 },
        index: NO_INDEX,
        session: session(0, 0),
        key_or_session: key,
        expected_seq: 1,
        number: 9,
        status: None,
        own_key,
        pipeline: own_key.map(|_| 13),
        udp: None,
        program: None,
    }
}

#[test]
fn unknown_partners_are_not_answered() {
    let mut programs = Programs::new(2, |_, _| {});
    let packets = [
        Packet::Connect(request(KEY, Some(KEY))),
        Packet::Announce {
            nic: mac(5).nic(),
            serial: 3,
        },
        Packet::HostQuery { index: 0, magic: 7 },
        Packet::HostReply {
            index: 0,
            magic: 7,
            name: b"name",
        },
    ];
    for (source, from) in [(mac(5), udp(0)), (mac(5), udp(5)), (mac(0), udp(5))] {
        for destination in [mac(1), Mac::BROADCAST] {
            for packet in packets {
                let frame = Frame {
                    destination,
                    source,
                    index: 0,
                    packet,
                };
                let node = programs.node(1);
                let before = node.counters().ignored;
                node.receive_datagram(Duration::ZERO, from, &frame.encode());
                assert_eq!(node.counters().ignored, before + 1);
                assert!(is_silent(node));
                node.tick(Duration::from_secs(1));
                assert!(is_silent(node));
            }
        }
    }
    // The known partner's packets of discovery are no better.
    for packet in &packets[1..] {
        let frame = Frame {
            destination: mac(1),
            source: mac(0),
            index: 0,
            packet: *packet,
        };
        let node = programs.node(1);
        node.receive_datagram(Duration::from_secs(1), udp(0), &frame.encode());
        assert!(is_silent(node));
    }
    // An endpoint of the known program that was not told.
    let mut connect = request(KEY, Some(KEY));
    connect.ends.from = 4;
    let frame = super::frames::frame(0, 1, Packet::Connect(connect));
    programs
        .node(1)
        .receive_datagram(Duration::from_secs(1), udp(0), &frame);
    assert!(is_silent(programs.node(1)));
    assert!(!programs.node(1).has_host(mac(5)));
    let connect = request(KEY, Some(KEY));
    let frame = super::frames::frame(0, 1, Packet::Connect(connect));
    programs
        .node(1)
        .receive_datagram(Duration::from_secs(1), udp(0), &frame);
    assert!(!is_silent(programs.node(1)), "the subject of the test");
}

/// A probe has no key of its sender, and never makes a connection, even with the right key.
#[test]
fn a_probe_makes_no_connection() {
    let mut programs = Programs::new(2, |_, _| {});
    let frame = super::frames::frame(0, 1, Packet::Connect(request(KEY, None)));
    programs
        .node(1)
        .receive_datagram(Duration::ZERO, udp(0), &frame);
    programs.collect();
    let sent = programs
        .sent
        .iter()
        .map(|(_, frame)| Frame::decode(frame).unwrap().packet);
    let sent: Vec<_> = sent.collect();
    assert!(
        matches!(sent[..], [Packet::Nack { code: 3, .. }]),
        "{sent:?}"
    );
    assert_eq!(programs.session(1, 0), None);
    // One that is connecting itself does not answer: the refusal might end its connection.
    programs.sent.clear();
    programs.loses = |_, _| true;
    programs.start_connect(1, 0);
    programs.collect();
    programs
        .node(1)
        .receive_datagram(Duration::ZERO, udp(0), &frame);
    programs.collect();
    assert_eq!(programs.sent.len(), 1, "the connect");
    assert_eq!(programs.events(1), []);
}

/// A probe of a connection that this side does not have leaves the one that it has.
#[test]
fn a_probe_of_another_connection_is_not_answered_as_one_of_this() {
    let mut programs = Programs::new(2, |_, _| {});
    programs.connect(0, 1);
    programs.sent.clear();
    let probe = request(KEY, None);
    let other_session = Connect {
        session: 99,
        ..probe
    };
    let other_numbers = Connect {
        expected_seq: 0x4001,
        ..probe
    };
    for (connect, refusals) in [(other_session, 1), (other_numbers, 0)] {
        let frame = super::frames::frame(0, 1, Packet::Connect(connect));
        let now = programs.now;
        programs.loses = |_, _| true;
        programs.node(1).receive_datagram(now, udp(0), &frame);
        programs.collect();
        let sent = std::mem::take(&mut programs.sent);
        assert_eq!(sent.len(), refusals);
        for (_, frame) in sent {
            let packet = Frame::decode(&frame).unwrap().packet;
            assert!(matches!(packet, Packet::Nack { code: 3, .. }), "{packet:?}");
        }
        assert_eq!(programs.session(1, 0), Some(session(0, 0)));
        assert_eq!(programs.events(1), []);
    }
}

/// The partner answers a probe with another session than it had.
#[test]
fn a_wrong_answer_to_a_probe_ends_the_connection() {
    let mut programs = Programs::new(2, |_, _| {});
    programs.connect(0, 1);
    programs.sent.clear();
    programs.loses = |_, _| true;
    programs.advance(Duration::from_secs(6));
    let mut probes = programs.sent.iter().filter_map(|(from, frame)| {
        match Frame::decode(frame).unwrap().packet {
            Packet::Connect(connect) if *from == 0 => Some(connect),
            _ => None,
        }
    });
    let probe = probes.next_back().unwrap();
    let answer = Connect {
        key_or_session: 99,
        status: Some(0),
        ..probe
    };
    let frame = super::frames::frame(1, 0, Packet::Connect(answer));
    let now = programs.now;
    programs.node(0).receive_datagram(now, udp(1), &frame);
    let ended = Event::Disconnected {
        endpoint: 3,
        from: at(1, 3),
        code: Code::BadSession,
    };
    assert_eq!(programs.events(0), [ended]);
    assert_eq!(programs.session(0, 1), None);
}

/// A partner that sends corrupted packets, and connects again and again, does not disturb the others.
#[test]
fn corrupted_datagrams_of_a_partner_do_not_disturb_others() {
    const LENGTHS: [usize; 6] = [0, 5, 129, 5000, 32_768, 100_000];
    let mut programs = Programs::new(3, |_, config| config.receive_buffer = Some(400_000));
    programs.hostile = Some(2);
    programs.connect(0, 1);
    for round in 0..150u64 {
        for to in 0..2 {
            let (now, own, to) = (programs.now, PLACES[2].1, programs.address(to));
            let node = programs.node(2);
            let _ = node.connect(now, own, to, KEY, 9);
            for length in LENGTHS {
                let message = (round, pattern(length, round));
                let _ = node.send(now, own, to, message, false, 2);
            }
        }
        let length = LENGTHS[round as usize % LENGTHS.len()];
        for (from, to) in [(0, 1), (1, 0)] {
            programs.send(from, to, round, pattern(length, round));
        }
        for (from, to) in [(0, 1), (1, 0)] {
            assert!(programs.receive(to, from) == (round, pattern(length, round)));
            pull_all(&mut programs, to);
        }
        programs.advance(Duration::from_millis(5));
        programs.sent.clear();
        programs.arrived.clear();
        let of_others = |event: &Event, other: Address| match event {
            Event::Disconnected { from, .. } | Event::PeerConnected { from, .. } => *from == other,
            _ => false,
        };
        for program in 0..2 {
            let other = programs.address(1 - program);
            let events = programs.events(program);
            assert!(!events.iter().any(|event| of_others(event, other)));
        }
        programs.events(2);
    }
    assert!(programs.corrupted > 500, "{}", programs.corrupted);
    // The hostile one connects in the end.
    programs.hostile = None;
    programs.disconnect(2, PLACES[2].1, at(0, 3));
    programs.start_connect(2, 0);
    programs.advance(Duration::from_secs(3));
    assert!(programs.events(2).contains(&connected(Code::Success)));
}

/// Pulls what the hostile program offers, as a program would.
fn pull_all(programs: &mut Programs, to: usize) {
    while let Some(message) = programs.take(to, 2) {
        if let Message::Offered { offer, length, .. } = message {
            let (now, own) = (programs.now, programs.address(to).endpoint);
            let _ = programs.node(to).pull(now, own, offer, length, 0);
        }
    }
}
