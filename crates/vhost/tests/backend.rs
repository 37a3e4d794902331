//! The state machine of a device, driven by its front-end.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::AsFd;

use common::{connect, device, serve};
use front_end::features::{self, protocol};
use front_end::wire::{NEED_REPLY, VERSION, message, number, request, state};
use front_end::{Layout, Nic, Options, Ram, Region};
use vhost::backend::{Backend, Change};
use vhost::fault::{Fault, ProtocolFault, RegionFault, RingFault};

/// Sends a request whose reply is a number; returns the number.
fn ask(nic: &Nic, backend: &mut Backend, request: u32) -> u64 {
    assert!(nic.wire.send(request, &[], &[]));
    serve(backend).unwrap();
    nic.wire.number(request)
}

/// Sends a message that requests an acknowledgement; returns the code of the acknowledgement.
fn acknowledged(nic: &Nic, backend: &mut Backend, request: u32, payload: &[u8]) -> u64 {
    assert!(
        nic.wire
            .send_raw(&message(request, VERSION | NEED_REPLY, payload), &[])
    );
    serve(backend).unwrap();
    nic.wire.number(request)
}

fn is_active(backend: &Backend, ring: usize) -> bool {
    backend.vring(ring).unwrap().active().is_some()
}

#[test]
fn qemus_order_of_messages_starts_both_rings() {
    // `device` enables rings before it sets features, as QEMU does.
    let (_nic, backend) = device(Options::default());
    assert!(is_active(&backend, 0) && is_active(&backend, 1));
    assert_eq!(backend.features(), features::PLAIN);
}

#[test]
fn a_ring_is_active_only_when_it_is_started_and_enabled() {
    let (nic, mut backend) = device(Options::default());
    for (enabled, expected) in [(0, false), (1, true)] {
        nic.wire
            .send(request::SET_VRING_ENABLE, &state(1, enabled), &[]);
        assert_eq!(serve(&mut backend).unwrap(), [Change::Ring(1)]);
        assert_eq!(
            (is_active(&backend, 0), is_active(&backend, 1)),
            (true, expected)
        );
    }
}

#[test]
fn without_protocol_features_rings_are_enabled_from_the_start() {
    let (wire, mut backend) = connect();
    let nic = Nic::new(wire, Options::default());
    let plain = features::PLAIN & !features::PROTOCOL_FEATURES;
    nic.wire.send(request::SET_FEATURES, &number(plain), &[]);
    let (table, fds) = nic.memory_table();
    nic.wire.send(request::SET_MEM_TABLE, &table, &fds);
    nic.start_rings([0; 2], || drop(serve(&mut backend).unwrap()));
    assert!(is_active(&backend, 0) && is_active(&backend, 1));
}

#[test]
fn with_protocol_features_rings_are_disabled_from_the_start() {
    let (wire, mut backend) = connect();
    let nic = Nic::new(wire, Options::default());
    nic.wire
        .send(request::SET_FEATURES, &number(features::PLAIN), &[]);
    let (table, fds) = nic.memory_table();
    nic.wire.send(request::SET_MEM_TABLE, &table, &fds);
    nic.start_rings([0; 2], || drop(serve(&mut backend).unwrap()));
    assert!(backend.vring(0).unwrap().is_running() && !is_active(&backend, 0));
}

#[test]
fn reply_ack_is_sent_when_it_is_negotiated_and_requested() {
    let (nic, mut backend) = device(Options::default());
    assert_eq!(
        acknowledged(&nic, &mut backend, request::SET_VRING_ENABLE, &state(0, 1)),
        0
    );
    // A request that has a reply gets this reply and no acknowledgement.
    nic.wire.send_raw(
        &message(request::GET_STATUS, VERSION | NEED_REPLY, &[]),
        &[],
    );
    serve(&mut backend).unwrap();
    assert_eq!(nic.wire.number(request::GET_STATUS), 0);
    // Without REPLY_ACK no acknowledgement is sent: the next message to read is the next reply.
    nic.wire
        .send(request::SET_PROTOCOL_FEATURES, &number(0), &[]);
    nic.wire
        .send_raw(&message(request::SET_OWNER, VERSION | NEED_REPLY, &[]), &[]);
    assert_eq!(ask(&nic, &mut backend, request::GET_QUEUE_NUM), 1);
}

#[test]
fn get_vring_base_stops_a_ring_where_it_is() {
    let (mut nic, mut backend) = device(Options {
        base: 65_530,
        ..Options::default()
    });
    for _ in 0..3 {
        assert!(nic.enqueue(&[0; 12], &[7; 60], Layout::One));
    }
    let _ = nic.tx.publish();
    backend
        .vring_mut(1)
        .unwrap()
        .active_mut()
        .unwrap()
        .consume(2);
    nic.wire.send(request::GET_VRING_BASE, &state(1, 0), &[]);
    assert_eq!(serve(&mut backend).unwrap(), [Change::Ring(1)]);
    assert_eq!(nic.wire.state(request::GET_VRING_BASE), (1, 65_532));
    assert!(!backend.vring(1).unwrap().is_running() && backend.vring(0).unwrap().is_running());
    // A stopped ring returns the same base.
    nic.wire.send(request::GET_VRING_BASE, &state(1, 0), &[]);
    serve(&mut backend).unwrap();
    assert_eq!(nic.wire.state(request::GET_VRING_BASE), (1, 65_532));
    // Restarted at this base, the ring continues with the third chain.
    nic.wire
        .send(request::SET_VRING_BASE, &state(1, 65_532), &[]);
    nic.wire.send(
        request::SET_VRING_KICK,
        &number(1),
        &[nic.tx.kick_fd().as_fd()],
    );
    serve(&mut backend).unwrap();
    let ring = backend.vring_mut(1).unwrap().active_mut().unwrap();
    assert_eq!(
        (ring.next_available(), ring.available().unwrap()),
        (65_532, 1)
    );
}

#[test]
fn size_and_base_of_a_running_ring_do_not_change() {
    for (request, payload) in [
        (request::SET_VRING_NUM, state(0, 128)),
        (request::SET_VRING_BASE, state(0, 0)),
    ] {
        let (nic, mut backend) = device(Options::default());
        nic.wire.send(request, &payload, &[]);
        let fault = ProtocolFault::Running { request, ring: 0 };
        assert_eq!(serve(&mut backend).unwrap_err(), Fault::Protocol(fault));
    }
}

#[test]
fn a_kick_before_size_or_addresses_is_a_fault() {
    let kick = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    for with_size in [false, true] {
        let (wire, mut backend) = connect();
        if with_size {
            wire.send(request::SET_VRING_NUM, &state(0, 256), &[]);
        }
        wire.send(request::SET_VRING_KICK, &number(0), &[kick.as_fd()]);
        let fault = Fault::Ring {
            ring: 0,
            fault: RingFault::NotConfigured,
        };
        assert_eq!(serve(&mut backend).unwrap_err(), fault);
    }
}

#[test]
fn every_message_that_resets_stops_all_rings() {
    for (request, payload) in [
        (request::RESET_OWNER, vec![]),
        (request::RESET_DEVICE, vec![]),
        (request::SET_STATUS, number(0)),
    ] {
        let (nic, mut backend) = device(Options::default());
        nic.wire.send(request, &payload, &[]);
        let received = backend.receive().unwrap().unwrap();
        assert_eq!(received.releases(2), 0..2);
        assert_eq!(backend.apply(received).unwrap(), Change::AllRings);
        assert!(backend.vrings_mut().all(|vring| !vring.is_running()));
        // The rings can be started again.
        nic.start_rings([0; 2], || drop(serve(&mut backend).unwrap()));
        assert!(backend.vring(0).unwrap().is_running() && backend.vring(1).unwrap().is_running());
    }
}

#[test]
fn a_message_with_the_number_of_a_missing_ring_is_refused() {
    for (request, payload) in [
        (request::GET_VRING_BASE, state(7, 0)),
        (request::SET_VRING_KICK, number(1 << 8 | 7)),
    ] {
        let (nic, mut backend) = device(Options::default());
        nic.wire.send(request, &payload, &[]);
        let received = backend.receive().unwrap().unwrap();
        assert!(received.releases(2).is_empty());
        let fault = ProtocolFault::RingNumber(7);
        assert_eq!(backend.apply(received).unwrap_err(), Fault::Protocol(fault));
    }
}

#[test]
fn get_status_returns_what_set_status_set() {
    let (nic, mut backend) = device(Options::default());
    assert_eq!(ask(&nic, &mut backend, request::GET_STATUS), 0);
    nic.wire.send(request::SET_STATUS, &number(15), &[]);
    assert_eq!(ask(&nic, &mut backend, request::GET_STATUS), 15);
    assert!(backend.vring(0).unwrap().is_running());
    assert_eq!(
        ask(&nic, &mut backend, request::GET_PROTOCOL_FEATURES) & protocol::STATUS,
        protocol::STATUS
    );
}

#[test]
fn spec_5_1_4_1_the_mtu_is_68_to_65535() {
    let (nic, mut backend) = device(Options::default());
    for (mtu, code) in [
        (67, 1),
        (0, 1),
        (65_536, 1),
        (u64::MAX, 1),
        (68, 0),
        (65_535, 0),
        (1500, 0),
    ] {
        let before = backend.mtu();
        assert_eq!(
            acknowledged(&nic, &mut backend, request::NET_SET_MTU, &number(mtu)),
            code
        );
        let expected = if code == 0 { mtu } else { before.into() };
        assert_eq!(u64::from(backend.mtu()), expected);
    }
}

#[test]
fn send_rarp_requests_an_announcement() {
    let (nic, mut backend) = device(Options::default());
    nic.wire
        .send(request::SEND_RARP, &[1, 2, 3, 4, 5, 6, 0, 0], &[]);
    assert_eq!(
        serve(&mut backend).unwrap(),
        [Change::Announce([1, 2, 3, 4, 5, 6])]
    );
}

#[test]
fn features_that_were_not_offered_are_refused() {
    let (nic, mut backend) = device(Options::default());
    let offered = ask(&nic, &mut backend, request::GET_FEATURES);
    for bit in (0..64).map(|bit| 1 << bit).filter(|bit| offered & bit == 0) {
        let (wire, mut backend) = connect();
        wire.send(request::SET_FEATURES, &number(bit), &[]);
        let fault = ProtocolFault::Features(bit);
        assert_eq!(serve(&mut backend).unwrap_err(), Fault::Protocol(fault));
    }
    nic.wire.send(request::SET_FEATURES, &number(offered), &[]);
    serve(&mut backend).unwrap();
    // LOG_ALL belongs to the front-end, not to the driver.
    assert_eq!(backend.features(), offered & !features::LOG_ALL);
}

#[test]
fn mq_is_offered_only_with_several_queue_pairs() {
    let (nic, mut backend) = device(Options::default());
    const MQ: u64 = 1 << 22;
    assert_eq!(ask(&nic, &mut backend, request::GET_FEATURES) & MQ, 0);
    let (wire, theirs) = front_end::Wire::pair();
    let mut many = Backend::new(theirs, 4).unwrap();
    let nic = Nic::new(wire, Options::default());
    assert_eq!(ask(&nic, &mut many, request::GET_FEATURES) & MQ, MQ);
    assert_eq!(ask(&nic, &mut many, request::GET_QUEUE_NUM), 4);
    assert_eq!(many.vring_count(), 8);
}

/// Memory for one more region, at addresses that the NIC's memory does not use.
fn spare() -> (Ram, Region) {
    let ram = Ram::new(1 << 16);
    let region = Region {
        guest: 1 << 40,
        user: 1 << 41,
        ..ram.regions()[0]
    };
    (ram, region)
}

fn single(region: Region) -> Vec<u8> {
    [vec![0; 8], region.to_bytes()].concat()
}

#[test]
fn regions_come_and_go_while_rings_run() {
    let (nic, mut backend) = device(Options::default());
    let (ram, region) = spare();
    for _ in 0..3 {
        nic.wire
            .send(request::ADD_MEM_REG, &single(region), &[ram.fd()]);
        serve(&mut backend).unwrap();
        assert_eq!(backend.memory().regions(), 2);
        assert!(backend.memory().contiguous(region.guest, 1 << 16).is_some());
        // The offset does not identify a region.
        let named = Region {
            offset: 77,
            ..region
        };
        nic.wire.send(request::REM_MEM_REG, &single(named), &[]);
        serve(&mut backend).unwrap();
        assert_eq!(backend.memory().regions(), 1);
        assert!(is_active(&backend, 0) && is_active(&backend, 1));
    }
}

#[test]
fn a_region_is_removed_only_if_both_addresses_and_the_size_match() {
    let (ram, region) = spare();
    for other in [
        Region {
            guest: region.guest + 4096,
            ..region
        },
        Region {
            user: region.user + 4096,
            ..region
        },
        Region {
            size: region.size - 4096,
            ..region
        },
    ] {
        let (nic, mut backend) = device(Options::default());
        nic.wire
            .send(request::ADD_MEM_REG, &single(region), &[ram.fd()]);
        nic.wire.send(request::REM_MEM_REG, &single(other), &[]);
        let fault = ProtocolFault::NoRegion(other.guest);
        assert_eq!(serve(&mut backend).unwrap_err(), Fault::Protocol(fault));
    }
}

#[test]
fn the_memory_table_is_replaced_while_rings_run() {
    let (mut nic, mut backend) = device(Options::default());
    for _ in 0..3 {
        let (table, fds) = nic.memory_table();
        nic.wire.send(request::SET_MEM_TABLE, &table, &fds);
        serve(&mut backend).unwrap();
        assert!(nic.send(&[1; 60], Layout::One));
        let ring = backend.vring_mut(1).unwrap().active_mut().unwrap();
        assert_eq!(ring.available().unwrap(), 1);
        ring.consume(1);
    }
    let (ram, region) = spare();
    let table = [state(1, 0), region.to_bytes()].concat();
    nic.wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()]);
    let fault = Fault::Ring {
        ring: 0,
        fault: RingFault::Outside("descriptor table"),
    };
    assert_eq!(serve(&mut backend).unwrap_err(), fault);
}

#[test]
fn overlapping_regions_are_refused_and_touching_ones_are_not() {
    let (ram, region) = spare();
    let size = region.size;
    for (guest, user, overlaps) in [
        (region.guest + size, region.user + size, false),
        (region.guest - size, region.user - size, false),
        (region.guest + size - 1, region.user + size, true),
        (region.guest + size, region.user + size - 1, true),
        (region.guest - size + 1, region.user - size, true),
        (region.guest, region.user, true),
    ] {
        let (wire, mut backend) = connect();
        wire.send(request::ADD_MEM_REG, &single(region), &[ram.fd()]);
        let other = Region {
            guest,
            user,
            ..region
        };
        wire.send(request::ADD_MEM_REG, &single(other), &[ram.fd()]);
        match serve(&mut backend) {
            Ok(_) => assert!(!overlaps),
            Err(Fault::Protocol(ProtocolFault::Region { why, .. })) => {
                assert!(overlaps);
                assert_eq!(why, RegionFault::Overlap);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn memory_that_is_shared_stays_mapped_after_its_replacement() {
    let (nic, mut backend) = device(Options::default());
    let (ram, region) = spare();
    nic.wire
        .send(request::ADD_MEM_REG, &single(region), &[ram.fd()]);
    serve(&mut backend).unwrap();
    ram.write(0, b"still here");
    let shared = std::sync::Arc::clone(backend.memory());
    nic.wire.send(request::REM_MEM_REG, &single(region), &[]);
    serve(&mut backend).unwrap();
    let mut bytes = [0; 10];
    let span = shared.contiguous(region.guest, 10).unwrap();
    span.read(&mut bytes);
    assert_eq!(&bytes, b"still here");
}

#[test]
fn new_addresses_move_a_running_ring() {
    let (mut nic, mut backend) = device(Options::default());
    // The same addresses, sent again.
    let [descriptors, used, available] = nic.tx.user_addresses();
    let place = front_end::wire::addresses(1, descriptors, used, available);
    nic.wire.send(request::SET_VRING_ADDR, &place, &[]);
    serve(&mut backend).unwrap();
    assert!(nic.send(&[1; 60], Layout::One));
    let ring = backend.vring_mut(1).unwrap().active_mut().unwrap();
    assert_eq!(ring.available().unwrap(), 1);
    let place = front_end::wire::addresses(1, descriptors, used, 1);
    nic.wire.send(request::SET_VRING_ADDR, &place, &[]);
    let fault = Fault::Ring {
        ring: 1,
        fault: RingFault::Outside("available ring"),
    };
    assert_eq!(serve(&mut backend).unwrap_err(), fault);
}
