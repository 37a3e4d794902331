//! The dirty log: its messages, and which pages each write marks (vhost-user specification,
//! "Migration").
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::AsFd;

use std::collections::BTreeSet;

use common::{connect, device, serve};
use front_end::features::{self, LOG_ALL, protocol};
use front_end::log::PAGE;
use front_end::wire::{
    NEED_REPLY, VERSION, log, logged_addresses, message, number, request, state,
};
use front_end::{Layout, Log, Nic, Options, Ram, Region};
use vhost::backend::{Backend, Change};
use vhost::fault::{Fault, ProtocolFault, RegionFault, RingFault};
use vhost::raw::MapError;
use vhost::ring::Ring;

fn ring(backend: &mut Backend, number: usize) -> &mut Ring {
    backend.vring_mut(number).unwrap().active_mut().unwrap()
}

fn pages<const N: usize>(addresses: [u64; N]) -> BTreeSet<u64> {
    addresses.map(|address| address / PAGE).into()
}

fn is_active(backend: &Backend) -> [bool; 2] {
    [0, 1].map(|ring| backend.vring(ring).unwrap().active().is_some())
}

/// A device whose used rings have log addresses that differ from their addresses in memory.
fn logged(options: Options) -> (Nic, Backend, Log) {
    let (nic, mut backend) = device(options);
    let log = Log::new(LOG_ADDRESSES[1] + (1 << 20));
    nic.set_log_base(&log, || drop(serve(&mut backend).unwrap()));
    nic.log_all(LOG_ADDRESSES, || drop(serve(&mut backend).unwrap()));
    drop(log.take());
    (nic, backend, log)
}

const LOG_ADDRESSES: [u64; 2] = [(1 << 32) + 12, (1 << 32) + (1 << 20)];

#[test]
fn spec_migration_a_used_ring_is_logged_at_its_log_address() {
    for event_idx in [0, features::EVENT_IDX] {
        let (mut nic, mut backend, log) = logged(Options {
            features: features::PLAIN & !features::EVENT_IDX | event_idx,
            size: 1024,
            base: 65_300,
            ..Options::default()
        });
        assert_eq!(log.take(), BTreeSet::new());
        assert!(nic.send(&[1; 60], Layout::One));
        let ring = ring(&mut backend, 1);
        ring.consume(1);
        ring.put_used(0, 0);
        assert_eq!(log.take(), BTreeSet::new(), "the driver cannot see it yet");
        let _ = ring.publish();
        let element = LOG_ADDRESSES[1] + 4 + 8 * (65_300 % 1024);
        assert_eq!(log.take(), pages([LOG_ADDRESSES[1], element]));
        ring.disable_kicks();
        let flags = if event_idx == 0 {
            pages([LOG_ADDRESSES[1]])
        } else {
            pages([])
        };
        assert_eq!(log.take(), flags);
        ring.enable_kicks(0).unwrap();
        let event = if event_idx == 0 { 0 } else { 4 + 8 * 1024 };
        assert_eq!(log.take(), pages([LOG_ADDRESSES[1] + event]));
    }
}

#[test]
fn spec_migration_elements_that_wrap_are_logged_at_both_ends() {
    let (_nic, mut backend, log) = logged(Options {
        size: 4096,
        base: 4090,
        ..Options::default()
    });
    let ring = ring(&mut backend, 0);
    for head in 0..600 {
        ring.put_used(head, 0);
    }
    let _ = ring.publish();
    let at = |place: u64| LOG_ADDRESSES[0] + 4 + 8 * place;
    assert_eq!(
        log.take(),
        pages([LOG_ADDRESSES[0], at(4090), at(4095) + 7, at(593)])
    );
    // More elements than the ring has, which a driver that breaks the rules can cause, mark all of it.
    for head in 0..5000 {
        ring.put_used(head % 4096, 0);
    }
    let _ = ring.publish();
    let all = LOG_ADDRESSES[0] / PAGE..=(at(4095) + 7) / PAGE;
    assert_eq!(log.take(), all.collect());
}

#[test]
fn set_log_base_always_has_exactly_one_reply() {
    let (nic, mut backend) = device(Options::default());
    let log_of_all = nic.log();
    let payload = log(log_of_all.bytes(), 0);
    for flags in [VERSION, VERSION | NEED_REPLY] {
        let bytes = message(request::SET_LOG_BASE, flags, &payload);
        nic.wire.send_raw(&bytes, &[log_of_all.ram.fd()]);
        assert_eq!(serve(&mut backend).unwrap(), [Change::AllRings]);
        assert_eq!(nic.wire.number(request::SET_LOG_BASE), 0);
    }
    nic.wire
        .send(request::SET_LOG_FD, &[], &[nic.tx.kick_fd().as_fd()]);
    nic.wire.send(request::GET_STATUS, &[], &[]);
    serve(&mut backend).unwrap();
    assert_eq!(nic.wire.number(request::GET_STATUS), 0, "no other reply");
}

#[test]
fn logging_ends_and_begins_again_while_rings_run() {
    let (nic, mut backend) = device(Options::default());
    for round in 0..3 {
        let log = nic.log();
        nic.start_log(&log, || drop(serve(&mut backend).unwrap()));
        assert!(backend.memory().log().is_some());
        assert_eq!(backend.features(), features::PLAIN);
        let used = |backend: &mut Backend, head| {
            let ring = ring(backend, 1);
            ring.put_used(head, 0);
            let _ = ring.publish();
        };
        used(&mut backend, 2 * round);
        assert!(!log.take().is_empty(), "round {round}");
        nic.stop_log(|| drop(serve(&mut backend).unwrap()));
        assert!(backend.memory().log().is_none());
        used(&mut backend, 2 * round + 1);
        assert!(log.take().is_empty(), "round {round}");
        assert_eq!(is_active(&backend), [true, true]);
    }
}

/// QEMU starts a device in the middle of a migration in this order. Writes of the rings before the log
/// arrives would be missing from it.
#[test]
fn rings_that_are_to_be_logged_wait_for_the_log() {
    let (nic, mut backend) = device(Options::default());
    let first = nic.log();
    nic.start_log(&first, || drop(serve(&mut backend).unwrap()));
    for ring in 0..2 {
        assert!(backend.memory().log().is_some());
        nic.wire.send(request::GET_VRING_BASE, &state(ring, 0), &[]);
        serve(&mut backend).unwrap();
        let _ = nic.wire.state(request::GET_VRING_BASE);
    }
    assert!(backend.memory().log().is_none(), "the log may be gone now");
    nic.log_all([nic.rx.used, nic.tx.used], || drop(serve(&mut backend)));
    nic.start_rings([0; 2], || drop(serve(&mut backend).unwrap()));
    nic.log_all([nic.rx.used, nic.tx.used], || drop(serve(&mut backend)));
    assert!(backend.vring(0).unwrap().is_running());
    assert_eq!(is_active(&backend), [false, false]);
    let second = nic.log();
    nic.set_log_base(&second, || {
        assert_eq!(serve(&mut backend).unwrap(), [Change::AllRings]);
    });
    assert_eq!(is_active(&backend), [true, true]);
    ring(&mut backend, 0).put_used(0, 0);
    let _ = ring(&mut backend, 0).publish();
    assert_eq!(first.take(), BTreeSet::new());
    assert_eq!(second.take(), pages([nic.rx.used]));
}

#[test]
fn rings_carry_traffic_again_when_logging_ends() {
    let (nic, mut backend) = device(Options::default());
    let log = nic.log();
    for round in 0..2 {
        nic.log_all([0; 2], || drop(serve(&mut backend).unwrap()));
        assert_eq!(is_active(&backend), [false, false], "round {round}");
        nic.set_log_base(&log, || drop(serve(&mut backend).unwrap()));
        assert_eq!(is_active(&backend), [true, true]);
        // The next migration needs another log.
        nic.stop_log(|| drop(serve(&mut backend).unwrap()));
        assert_eq!(is_active(&backend), [true, true]);
    }
    nic.log_all([0; 2], || drop(serve(&mut backend).unwrap()));
    nic.stop_log(|| drop(serve(&mut backend).unwrap()));
    assert_eq!(is_active(&backend), [true, true]);
}

#[test]
fn a_log_comes_before_memory_and_grows_with_it() {
    let (wire, mut backend) = connect();
    let mut nic = Nic::new(wire, Options::default());
    let protocol = number(protocol::LOG_SHMFD);
    nic.wire
        .send(request::SET_PROTOCOL_FEATURES, &protocol, &[]);
    let small = Log::new(PAGE);
    nic.set_log_base(&small, || drop(serve(&mut backend).unwrap()));
    nic.start(|| drop(serve(&mut backend).unwrap()));
    let log = nic.log();
    nic.start_log(&log, || drop(serve(&mut backend).unwrap()));
    // A region past the end of the log needs a longer log first.
    let spare = Ram::new(1 << 16);
    let region = Region {
        guest: log.bytes() * 8 * PAGE,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let longer = Log::new(region.guest + region.size);
    nic.set_log_base(&longer, || drop(serve(&mut backend).unwrap()));
    let single = [vec![0; 8], region.to_bytes()].concat();
    nic.wire.send(request::ADD_MEM_REG, &single, &[spare.fd()]);
    serve(&mut backend).unwrap();
    let memory = backend.memory();
    let span = memory.contiguous(region.guest + 5000, 100).unwrap();
    memory.mark(&[span], 100);
    assert_eq!(longer.take(), pages([region.guest + 5000]));
    assert_eq!(log.take(), BTreeSet::new());
    // A memory table that replaces all regions keeps the log.
    let (table, fds) = nic.memory_table();
    nic.wire.send(request::SET_MEM_TABLE, &table, &fds);
    serve(&mut backend).unwrap();
    let memory = backend.memory();
    let span = memory.contiguous(0x3000, 100).unwrap();
    memory.mark(&[span], 100);
    assert_eq!(longer.take(), pages([0x3000]));
}

/// Two regions of the same file: a write is logged at the guest-physical address that it used.
#[test]
fn writes_to_regions_that_share_a_file_are_logged_at_their_own_addresses() {
    let (nic, mut backend, log) = logged(Options::default());
    let alias = Region {
        guest: 1 << 30,
        user: 1 << 41,
        ..nic.ram.regions()[0]
    };
    let single = [vec![0; 8], alias.to_bytes()].concat();
    nic.wire
        .send(request::ADD_MEM_REG, &single, &[nic.ram.fd()]);
    serve(&mut backend).unwrap();
    for base in [0, alias.guest] {
        let memory = backend.memory();
        let spans = [PAGE - 1, 5 * PAGE].map(|at| memory.contiguous(base + at, 4).unwrap());
        memory.mark(&spans, 5);
        assert_eq!(log.take(), pages([base, base + PAGE, base + 5 * PAGE]));
        memory.mark(&spans, 4);
        assert_eq!(log.take(), pages([base, base + PAGE]));
    }
}

#[test]
fn set_log_base_needs_its_protocol_feature() {
    let (wire, mut backend) = connect();
    let ram = Ram::new(1 << 16);
    wire.send(request::SET_LOG_BASE, &log(1 << 16, 0), &[ram.fd()]);
    let fault = ProtocolFault::NotNegotiated(request::SET_LOG_BASE);
    assert_eq!(serve(&mut backend).unwrap_err(), Fault::Protocol(fault));
}

/// Returns the fault that a log of this size at this offset of a file of 64 KiB causes.
fn refused(size: u64, offset: u64) -> Fault {
    let (nic, mut backend) = device(Options::default());
    let ram = Ram::new(1 << 16);
    nic.wire
        .send(request::SET_LOG_BASE, &log(size, offset), &[ram.fd()]);
    serve(&mut backend).unwrap_err()
}

#[test]
fn cve_2020_10722_a_log_that_is_not_in_its_file() {
    for (size, offset, why) in [
        (0, 0, MapError::Range),
        (u64::MAX, 1, MapError::Range),
        (1, u64::MAX, MapError::Range),
        (4096, u64::MAX - 4094, MapError::Range),
        ((1 << 16) + 1, 0, MapError::PastEnd { file: 1 << 16 }),
        (1 << 16, 1, MapError::PastEnd { file: 1 << 16 }),
        (u64::MAX, 0, MapError::PastEnd { file: 1 << 16 }),
    ] {
        let fault = ProtocolFault::Log { size, why };
        assert_eq!(refused(size, offset), Fault::Protocol(fault));
    }
}

#[test]
fn a_log_too_short_for_memory_is_refused() {
    // In either order: logging, then the log; the log, then logging; the log, then memory.
    for order in 0..3 {
        let (nic, mut backend) = device(Options::default());
        let end = nic.ram.regions()[0].size;
        let short = Log::new(end - 8 * 8 * PAGE);
        let fits = nic.log();
        let first = if order == 2 { &fits } else { &short };
        let payload = log(first.bytes(), 0);
        let all = number(nic.options.features | LOG_ALL);
        let mut send = |request, payload: &[u8], fds: &[_]| {
            nic.wire.send(request, payload, fds);
            serve(&mut backend)
        };
        if order == 0 {
            send(request::SET_FEATURES, &all, &[]).unwrap();
        }
        let result = send(request::SET_LOG_BASE, &payload, &[first.ram.fd()]);
        let (guest, size, result) = match order {
            0 => (0, end, result),
            1 => (0, end, send(request::SET_FEATURES, &all, &[])),
            _ => {
                send(request::SET_FEATURES, &all, &[]).unwrap();
                let spare = Ram::new(PAGE);
                let region = Region {
                    guest: fits.bytes() * 8 * PAGE,
                    user: 1 << 41,
                    ..spare.regions()[0]
                };
                let single = [vec![0; 8], region.to_bytes()].concat();
                let result = send(request::ADD_MEM_REG, &single, &[spare.fd()]);
                (region.guest, region.size, result)
            }
        };
        let why = RegionFault::NotLogged;
        let fault = ProtocolFault::Region { guest, size, why };
        assert_eq!(result.unwrap_err(), Fault::Protocol(fault), "order {order}");
    }
}

#[test]
fn cve_2019_14835_a_used_ring_that_is_logged_past_the_log() {
    let (nic, _backend) = device(Options::default());
    let room = nic.log().bytes() * 8 * PAGE;
    let used = 6 + 8 * 256;
    for (address, fits) in [
        (room - used, true),
        (room - used + 1, false),
        (u64::MAX, false),
        (u64::MAX - used + 1, false),
    ] {
        let (nic, mut backend) = device(Options::default());
        let log = nic.log();
        nic.set_log_base(&log, || drop(serve(&mut backend).unwrap()));
        let all = number(nic.options.features | LOG_ALL);
        nic.wire.send(request::SET_FEATURES, &all, &[]);
        let places = logged_addresses(0, nic.rx.user_addresses(), address);
        nic.wire.send(request::SET_VRING_ADDR, &places, &[]);
        let fault = Fault::Ring {
            ring: 0,
            fault: RingFault::NotLogged(address),
        };
        let result = serve(&mut backend).map(drop);
        assert_eq!(result, if fits { Ok(()) } else { Err(fault) });
    }
}
