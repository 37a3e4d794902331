//! Forwarding between well-behaved VMs.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use common::{Plane, exchange, learn_addresses, lost};
use front_end::{Layout, Nic, Options, features, frame};
use switch::control::{Event, Order, PortId, Reason};
use switch::mac::Mac;

#[test]
fn an_unknown_destination_is_flooded_and_a_known_one_is_not() {
    let mut plane = Plane::new();
    let mut nics: Vec<Nic> = (1..=3)
        .map(|port| plane.nic(port, Options::default()))
        .collect();
    let to_two = frame::numbered(frame::mac(2), frame::mac(1), 1, 60);
    nics[0].wait_to_send(&to_two, Layout::One);
    assert_eq!(nics[1].wait_to_receive().frame, to_two);
    assert_eq!(nics[2].wait_to_receive().frame, to_two);

    learn_addresses(&mut nics, &[1, 2, 3]);
    nics[0].wait_to_send(&to_two, Layout::One);
    assert_eq!(nics[1].wait_to_receive().frame, to_two);
    // The next frame that the third receives is the one sent to it afterwards.
    let to_three = frame::numbered(frame::mac(3), frame::mac(1), 2, 60);
    nics[0].wait_to_send(&to_three, Layout::One);
    assert_eq!(nics[2].wait_to_receive().frame, to_three);
    assert_eq!(plane.report().1.fdb_entries, 3);
    assert_eq!(plane.port(1).fdb_entries, 1);
}

#[test]
fn repeated_look_ups_do_not_change_the_destination() {
    let mut plane = Plane::new();
    let mut nics: Vec<Nic> = (1..=3)
        .map(|port| plane.nic(port, Options::default()))
        .collect();
    learn_addresses(&mut nics, &[1, 2, 3]);
    for times in [1, 10, 1000, 0] {
        plane.order(&Order::SetLookUps { times }, None);
        let known = frame::numbered(frame::mac(2), frame::mac(1), times.into(), 60);
        let unknown = frame::numbered(frame::mac(9), frame::mac(1), times.into(), 60);
        let own = frame::numbered(frame::mac(1), frame::mac(1), times.into(), 60);
        for sent in [&known, &own, &unknown, &known] {
            nics[0].wait_to_send(sent, Layout::One);
        }
        for expected in [&known, &unknown, &known] {
            assert_eq!(&nics[1].wait_to_receive().frame, expected, "{times}");
        }
        assert_eq!(nics[2].wait_to_receive().frame, unknown, "{times}");
    }
    assert_eq!(plane.counters(1).drops.hairpin, 4);
}

#[test]
fn a_station_that_moves_is_found_at_its_new_port() {
    let mut plane = Plane::new();
    let mut nics: Vec<Nic> = (1..=3)
        .map(|port| plane.nic(port, Options::default()))
        .collect();
    learn_addresses(&mut nics, &[1, 2, 3]);
    let moved = frame::numbered(frame::mac(1), frame::mac(2), 7, 60);
    nics[2].wait_to_send(&moved, Layout::One);
    assert_eq!(nics[0].wait_to_receive().frame, moved);
    let answer = frame::numbered(frame::mac(2), frame::mac(1), 8, 60);
    nics[0].wait_to_send(&answer, Layout::One);
    assert_eq!(nics[2].wait_to_receive().frame, answer);
}

#[test]
fn a_pinned_address_is_neither_learnt_nor_flooded() {
    let mut plane = Plane::new();
    let mut nics: Vec<Nic> = (1..=3)
        .map(|port| plane.nic(port, Options::default()))
        .collect();
    learn_addresses(&mut nics, &[1, 2, 3]);
    let pin = Order::SetFdbEntry {
        mac: Mac::from_octets(frame::mac(9)),
        vlan: 0,
        port: PortId(2),
    };
    plane.order(&pin, None);
    assert_eq!(plane.report().1.fdb_entries, 4);
    // Another port uses the pinned address.
    let impostor = frame::numbered(frame::mac(1), frame::mac(9), 1, 60);
    nics[2].wait_to_send(&impostor, Layout::One);
    assert_eq!(nics[0].wait_to_receive().frame, impostor);
    let to_resident = frame::numbered(frame::mac(9), frame::mac(1), 2, 60);
    nics[0].wait_to_send(&to_resident, Layout::One);
    assert_eq!(nics[1].wait_to_receive().frame, to_resident);
    nics[0].wait_until_sent();
    assert_eq!(nics[2].receive(), None, "flooded to the impostor");
    // Unpinned, it is unknown again, and flooded.
    let unpin = Order::RemoveFdbEntry {
        mac: Mac::from_octets(frame::mac(9)),
        vlan: 0,
    };
    plane.order(&unpin, None);
    assert_eq!(plane.report().1.fdb_entries, 3);
    nics[0].wait_to_send(&to_resident, Layout::One);
    assert_eq!(nics[2].wait_to_receive().frame, to_resident);
}

#[test]
fn a_frame_is_not_returned_to_its_sender() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    a.wait_to_send(
        &frame::numbered(frame::mac(1), frame::mac(1), 1, 60),
        Layout::One,
    );
    exchange((&mut a, 1), (&mut b, 2), 10, 100);
    assert_eq!(a.receive(), None);
    assert_eq!(plane.counters(1).drops.hairpin, 1);
}

#[test]
fn every_layout_of_a_frame_arrives_as_it_was_sent() {
    let mut plane = Plane::new();
    let layouts = [
        Layout::One,
        Layout::SeparateHeader,
        Layout::Pieces(1),
        Layout::Pieces(5),
        Layout::Pieces(12),
        Layout::Pieces(13),
        Layout::Pieces(4000),
        Layout::Indirect(7),
        Layout::Indirect(1500),
    ];
    let options = Options {
        size: 1024,
        ..Options::default()
    };
    let receivers = layouts
        .iter()
        .filter(|layout| **layout != Layout::Pieces(1));
    for (place, receive_layout) in (10..).zip(receivers) {
        let mut nics = [
            plane.nic(1, options),
            plane.nic(
                place,
                Options {
                    receive_layout: *receive_layout,
                    receive_bytes: 1000,
                    regions: 5,
                    ..options
                },
            ),
        ];
        learn_addresses(&mut nics, &[1, place]);
        let [a, b] = &mut nics;
        for (number, layout) in (0..).zip(layouts) {
            for length in [frame::SHORTEST, 60, 61, 500, 988, 989, 1514, 1980] {
                let bytes = frame::numbered(frame::mac(place), frame::mac(1), number, length);
                if layout == Layout::Pieces(1) && length > 900 {
                    continue;
                }
                a.wait_to_send(&bytes, layout);
                let got = b.wait_to_receive();
                assert_eq!(got.frame, bytes, "{layout:?} to {receive_layout:?}");
                assert_eq!(usize::from(got.buffers), (length + 12).div_ceil(1000));
                assert_eq!(got.header[..10], [0; 10]);
            }
        }
        drop(nics);
        for port in [1, place] {
            assert_eq!(plane.detached(port).0, Reason::Disconnected);
        }
    }
}

#[test]
fn legacy_drivers_have_a_header_of_ten_bytes() {
    let mut plane = Plane::new();
    let legacy = Options {
        features: features::PROTOCOL_FEATURES,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, legacy), plane.nic(2, Options::default())];
    learn_addresses(&mut nics, &[1, 2]);
    let [a, b] = &mut nics;
    exchange((a, 1), (b, 2), 300, 700);
    exchange((b, 2), (a, 1), 300, 700);
}

#[test]
fn frames_of_impossible_length_are_dropped_and_counted() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    a.wait_to_send(&[0; 13], Layout::One);
    a.wait_to_send(&[], Layout::One);
    a.wait_to_send(&vec![0; 65_598], Layout::One);
    exchange((&mut a, 1), (&mut b, 2), 10, 100);
    assert_eq!(plane.counters(1).drops.bad_length, 3);
    // The longest frame possible, in many buffers.
    let longest = frame::numbered(frame::mac(2), frame::mac(1), 5, 65_597);
    a.wait_to_send(&longest, Layout::One);
    assert_eq!(b.wait_to_receive().frame, longest);
}

#[test]
fn sixty_four_ports_talk_all_to_all() {
    const PORTS: u16 = 64;
    let mut plane = Plane::new();
    let options = Options {
        size: 128,
        receive_bytes: 256,
        ..Options::default()
    };
    let mut nics: Vec<Nic> = (0..PORTS).map(|port| plane.nic(port, options)).collect();
    let stations: Vec<u16> = (0..PORTS).collect();
    learn_addresses(&mut nics, &stations);
    for from in 0..PORTS {
        for to in (0..PORTS).filter(|to| *to != from) {
            let number = u64::from(from) << 16 | u64::from(to);
            let bytes = frame::numbered(frame::mac(to), frame::mac(from), number, 80);
            nics[usize::from(from)].wait_to_send(&bytes, Layout::One);
        }
    }
    for to in 0..PORTS {
        let mut seen = vec![false; usize::from(PORTS)];
        for _ in 1..PORTS {
            let received = nics[usize::from(to)].wait_to_receive();
            let number = frame::number(&received.frame);
            assert_eq!(number & 0xffff, u64::from(to));
            let from = (number >> 16) as usize;
            assert!(!std::mem::replace(&mut seen[from], true), "twice");
        }
    }
    for nic in &mut nics {
        nic.wait_until_sent();
        assert_eq!(nic.receive(), None);
    }
    let (reports, worker) = plane.report();
    assert_eq!(worker.fdb_entries, u32::from(PORTS));
    for report in reports {
        let counters = report.counters;
        assert_eq!((counters.tx_frames, lost(&counters.drops)), (64, 0));
        assert_eq!(counters.rx_frames, 63 * 2);
    }
}

#[test]
fn a_ring_resumes_where_it_was_stopped() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for _ in 0..3 {
        exchange((&mut a, 1), (&mut b, 2), 100, 100);
        a.restart();
        exchange((&mut b, 2), (&mut a, 1), 100, 100);
    }
}

#[test]
fn memory_regions_are_added_and_removed_while_rings_run() {
    use front_end::wire::request;
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let spare = front_end::Ram::new(1 << 20);
    let region = front_end::Region {
        guest: 1 << 40,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let single = [vec![0; 8], region.to_bytes()].concat();
    for _ in 0..10 {
        assert!(a.wire.send(request::ADD_MEM_REG, &single, &[spare.fd()]));
        exchange((&mut a, 1), (&mut b, 2), 50, 100);
        let (table, fds) = a.memory_table();
        assert!(a.wire.send(request::SET_MEM_TABLE, &table, &fds));
        exchange((&mut a, 1), (&mut b, 2), 50, 100);
        assert!(a.wire.send(request::ADD_MEM_REG, &single, &[spare.fd()]));
        assert!(a.wire.send(request::REM_MEM_REG, &single, &[]));
        exchange((&mut b, 2), (&mut a, 1), 50, 100);
    }
    assert!(a.wire.send(request::GET_MAX_MEM_SLOTS, &[], &[]));
    assert!(a.wire.number(request::GET_MAX_MEM_SLOTS) >= 8);
}

#[test]
fn a_disabled_ring_carries_nothing_until_it_is_enabled() {
    use front_end::wire::{request, state};
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    a.wire.send(request::SET_VRING_ENABLE, &state(1, 0), &[]);
    a.sync();
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 60);
    assert!(a.send(&bytes, Layout::One));
    a.tx.kick();
    exchange((&mut b, 2), (&mut a, 1), 10, 100);
    assert_eq!((b.receive(), a.reclaim()), (None, 0));
    a.wire.send(request::SET_VRING_ENABLE, &state(1, 1), &[]);
    assert_eq!(b.wait_to_receive().frame, bytes);
    // A disabled receiver counts as down.
    b.wire.send(request::SET_VRING_ENABLE, &state(0, 0), &[]);
    b.sync();
    assert!(a.send(&bytes, Layout::One));
    a.wait_until_sent();
    assert_eq!(plane.counters(1).drops.receiver_down, 1);
}

#[test]
fn a_migrated_station_is_announced() {
    use front_end::wire::{number, request};
    let mut plane = Plane::new();
    let mut nics: Vec<Nic> = (1..=3)
        .map(|port| plane.nic(port, Options::default()))
        .collect();
    learn_addresses(&mut nics, &[1, 2, 3]);
    let [a, b, c, d, e, f] = frame::mac(2);
    let mac = number(u64::from_ne_bytes([a, b, c, d, e, f, 0, 0]));
    assert!(nics[2].wire.send(request::SEND_RARP, &mac, &[]));
    for nic in &mut nics[..2] {
        let rarp = nic.wait_to_receive().frame;
        assert_eq!(rarp[6..12], frame::mac(2));
        assert_eq!(rarp[12..14], [0x80, 0x35]);
    }
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 60);
    nics[0].wait_to_send(&bytes, Layout::One);
    assert_eq!(nics[2].wait_to_receive().frame, bytes);
    assert_eq!(nics[1].receive(), None);
}

#[test]
fn the_mtu_is_reported() {
    use front_end::wire::{number, request};
    let mut plane = Plane::new();
    let [a, _b] = plane.pair(1, 2);
    assert!(a.wire.send(request::NET_SET_MTU, &number(9000), &[]));
    a.sync();
    assert_eq!(plane.port(1).mtu, 9000);
    assert_eq!(plane.port(1).features, features::PLAIN);
}

#[test]
fn an_impossible_attach_is_answered_with_detached() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let _wire = plane.attach(5000);
    assert!(matches!(plane.detached(5000).0, Reason::Host(_)));
    let order = Order::Attach {
        port: PortId(4),
        name: String::new(),
    };
    plane.order(&order, None);
    assert!(matches!(plane.detached(4).0, Reason::Host(_)));
    exchange((&mut a, 1), (&mut b, 2), 10, 100);
}

/// The socket has room for a few hundred messages. Further events wait in the data plane and arrive without
/// another order.
#[test]
fn a_supervisor_that_reads_late_gets_all_events() {
    const TIMES: usize = 2000;
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for _ in 0..TIMES {
        plane.order(&Order::Report, None);
    }
    // Meanwhile frames are forwarded.
    exchange((&mut a, 1), (&mut b, 2), 100, 60);
    let mut ends = 0;
    while ends < TIMES {
        ends += usize::from(matches!(plane.next(), Event::ReportEnd(_)));
    }
}
