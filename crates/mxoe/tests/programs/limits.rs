//! Limits of nodes whose frames all travel in datagrams: blocks in flight, and the table of partners.

use std::collections::BTreeMap;
use std::time::Duration;

use mxoe::wire::Packet;
use mxoe::{Address, Code, Config, Event};

use super::connections::{decoded, exchange, two};
use super::frames::{KEY, at, mac, pattern};
use super::network::{Programs, none_is_lost, udp};

/// Pulls messages at program 0, and returns the most blocks in flight at the same time.
fn most_in_flight(buffer: Option<usize>, loss: u8) -> usize {
    let mut programs = Programs::new(3, |_, config| config.receive_buffer = buffer);
    programs.connect(1, 0);
    programs.connect(2, 0);
    programs.loss = loss;
    let length = 500_000;
    let mut offers = Vec::new();
    for value in 0..3 {
        for from in [1, 2] {
            programs.send(from, 0, value, pattern(length as usize, value));
            offers.push((programs.offered(0, from), value));
        }
    }
    programs.sent.clear();
    programs.arrived.clear();
    let mut pulls = Vec::new();
    for (offer, value) in offers {
        let now = programs.now;
        let pull = programs.node(0).pull(now, 3, offer, length, value);
        pulls.push((pull.unwrap(), value, Vec::new()));
    }
    let (mut most, mut missing) = (0, BTreeMap::new());
    let count = |missing: &mut BTreeMap<(u32, u32), u32>, programs: &mut Programs| {
        let arrived = std::mem::take(&mut programs.arrived);
        for (_, packet) in decoded(&arrived) {
            if let Packet::Reply(reply) = packet {
                let block = (reply.handle, reply.offset & !0x7fff);
                let left = missing.get_mut(&block).unwrap();
                *left = left.saturating_sub(reply.data.len() as u32);
                if *left == 0 {
                    missing.remove(&block);
                }
            }
        }
        let sent = std::mem::take(&mut programs.sent);
        for (_, packet) in decoded(&sent) {
            if let Packet::Pull(pull) = packet {
                missing.insert((pull.handle, pull.frame * 4096), u32::from(pull.length));
            }
        }
        missing.len()
    };
    while pulls
        .iter()
        .any(|(_, _, data)| data.len() < length as usize)
    {
        let end = programs.now + Duration::from_secs(100);
        assert!(programs.step(end), "a pull hangs");
        let now = programs.now;
        for (pull, _, data) in &mut pulls {
            while let Some(piece) = programs.node(0).next_piece(now, 3, *pull) {
                data.extend(piece);
            }
        }
        programs.collect();
        most = most.max(match loss {
            0 => count(&mut missing, &mut programs),
            _ => 0,
        });
    }
    for (_, value, data) in pulls {
        assert!(data == pattern(length as usize, value));
    }
    most
}

#[test]
fn the_blocks_in_flight_fit_into_the_receive_buffer() {
    assert_eq!(most_in_flight(Some(425_984), 0), 6);
    assert_eq!(most_in_flight(Some(100_000), 0), 1);
    assert_eq!(most_in_flight(Some(0), 0), 1);
    assert!(most_in_flight(None, 0) > 30);
    most_in_flight(Some(425_984), 10);
    most_in_flight(Some(0), 10);
}

/// The blocks of a pull that ends are free for the other ones.
#[test]
fn pulls_go_on_after_another_one_has_ended() {
    let ends: [fn(&mut Programs); 2] = [
        |programs| {
            programs.disconnect(0, 3, at(1, 3));
            // The next tick requests the blocks of the other one, and nothing else may cause a tick.
            let now = programs.now;
            assert!(programs.node(0).deadline().is_some_and(|at| at <= now));
        },
        // The first one has timed out.
        |programs| programs.advance(Duration::from_millis(100)),
    ];
    for end in ends {
        let mut programs = Programs::new(3, |_, config| config.receive_buffer = Some(0));
        programs.connect(1, 0);
        programs.connect(2, 0);
        let mut offers = Vec::new();
        for from in [1, 2] {
            programs.send(from, 0, 7, pattern(100_000, from as u64));
            offers.push(programs.offered(0, from));
        }
        // Until no other timer is due.
        programs.advance(Duration::from_millis(100));
        programs.loses = |from, packet| from == 1 && matches!(packet, Packet::Reply(_));
        let now = programs.now;
        let pulls = [0, 1].map(|pull| programs.node(0).pull(now, 3, offers[pull], 100_000, 7));
        end(&mut programs);
        let (started, pull) = (programs.now, pulls[1].unwrap());
        let mut data = Vec::new();
        while data.len() < 100_000 {
            data.extend(programs.until(|all| all.all[0].node.next_piece(all.now, 3, pull)));
        }
        assert!(data == pattern(100_000, 2));
        assert!(programs.now - started < Duration::from_secs(1));
    }
}

#[test]
fn the_table_of_partners_is_limited() {
    let mut programs = two();
    programs.connect(0, 1);
    let now = programs.now;
    let partner = |number: usize| Address {
        host: mac(number / 200),
        endpoint: (number % 200) as u8 + 10,
    };
    for number in 0..1023 {
        assert!(
            programs
                .node(0)
                .add_partner(now, 3, partner(number), udp(2))
        );
    }
    assert!(!programs.node(0).add_partner(now, 3, partner(1023), udp(2)));
    // A known one is no new one.
    assert!(programs.node(0).add_partner(now, 3, partner(0), udp(3)));
    programs.advance(Duration::from_secs(9));
    let now = programs.now;
    assert!(!programs.node(0).add_partner(now, 3, partner(1023), udp(2)));
    assert!(programs.node(0).add_partner(now, 3, partner(1), udp(2)));
    programs.advance(Duration::from_secs(2));
    let now = programs.now;
    assert!(programs.node(0).add_partner(now, 3, partner(1023), udp(2)));
    // Those told a short time ago stay, and the connected one.
    let knows = |programs: &mut Programs, number| {
        programs
            .node(0)
            .connect(now, 3, partner(number), KEY, 2)
            .is_ok()
    };
    assert!(knows(&mut programs, 1) && knows(&mut programs, 1023));
    assert!(!knows(&mut programs, 2));
    exchange(&mut programs, 0, 1);
}

#[test]
fn the_programs_of_partners_are_those_in_use_or_told_a_short_time_ago() {
    let mut programs = two();
    programs.connect(0, 1);
    let connected = programs.all[1].udp;
    for number in 10..20 {
        let now = programs.now;
        let partner = at(5, number);
        assert!(programs.node(0).add_partner(now, 3, partner, udp(7)));
    }
    let now = programs.now;
    assert_eq!(programs.node(0).partner_programs(now), [connected, udp(7)]);
    programs.advance(Duration::from_secs(11));
    let now = programs.now;
    assert_eq!(programs.node(0).partner_programs(now), [connected]);
}

/// Another program has the remote endpoint.
#[test]
fn a_partner_that_gets_another_address_is_not_connected_any_more() {
    let mut programs = two();
    let now = programs.now;
    assert!(programs.node(0).add_partner(now, 3, at(1, 3), udp(2)));
    programs.all[1].udp = udp(2);
    programs.connect(0, 1);
    let now = programs.now;
    assert!(programs.node(0).add_partner(now, 3, at(1, 3), udp(2)));
    exchange(&mut programs, 0, 1);
    let now = programs.now;
    assert!(programs.node(0).add_partner(now, 3, at(1, 3), udp(1)));
    let ended = Event::Disconnected {
        endpoint: 3,
        from: at(1, 3),
        code: Code::Closed,
    };
    assert_eq!(programs.events(0).last(), Some(&ended));
    let v6 = "[fe80::1]:5000".parse().unwrap();
    assert!(!programs.node(0).add_partner(now, 3, at(5, 3), v6));
    let mut config = Config::new(mac(0), "frames", 1);
    config.udp = Some(udp(0));
    let mut frames = mxoe::Node::new(config);
    assert!(!frames.add_partner(now, 3, at(1, 3), udp(1)));
}

/// A process that took the endpoint of another one, whose connection this side has not reported.
#[test]
fn a_connection_that_was_not_reported_does_not_keep_the_address() {
    let mut programs = two();
    programs.loses = |from, _| from == 1;
    programs.start_connect(0, 1);
    programs.advance(Duration::from_millis(100));
    assert!(programs.session(1, 0).is_some(), "the subject of the test");
    programs.loses = none_is_lost;
    let now = programs.now;
    assert!(programs.node(1).add_partner(now, 3, at(0, 3), udp(2)));
    assert_eq!(programs.session(1, 0), None);
    programs.disconnect(0, 3, at(1, 3));
    programs.all[0].udp = udp(2);
    programs.connect(0, 1);
    exchange(&mut programs, 0, 1);
}
