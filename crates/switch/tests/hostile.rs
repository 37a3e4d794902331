//! Bad input, each class against a whole data plane: the hostile port is detached for a fault
//! that names the cause, and two well-behaved neighbours exchange traffic before, meanwhile and
//! afterwards and lose nothing.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Plane, exchange, lost};
use front_end::queue::{INDIRECT, NEXT, WRITE, descriptor};
use front_end::wire::{NEED_REPLY, VERSION, addresses, message, number, request, state};
use front_end::{Buffer, Layout, Nic, Options, Ram, Region, Wire, features, frame};
use switch::control::{Order, PortId, Reason};
use switch::mac::Mac;

const BAD: u16 = 7;

/// Two good neighbours and whatever `attack` does as port 7, at the same time; gives the fault
/// the hostile port was detached for.
fn against(attack: impl FnOnce(&mut Plane)) -> String {
    let mut plane = Plane::new();
    let mut good = plane.pair(1, 2);
    let over = AtomicBool::new(false);
    let text = std::thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let [a, b] = &mut good;
            let mut rounds = 0;
            while rounds < 3 || !over.load(Ordering::Relaxed) {
                exchange((&mut *a, 1), (&mut *b, 2), 100, 200);
                exchange((&mut *b, 2), (&mut *a, 1), 100, 1500);
                rounds += 1;
            }
            rounds
        });
        let text = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            attack(&mut plane);
            plane.fault(BAD)
        }));
        over.store(true, Ordering::Relaxed);
        let rounds = traffic.join().expect("the neighbours' traffic went on");
        let text = text.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        plane.assert_no_more_of(BAD);
        for (port, greeted) in [(1, 1), (2, 1)] {
            let counters = plane.counters(port);
            assert_eq!(counters.tx_frames, rounds * 100 + greeted);
            let drops = counters.drops;
            // Floods may find the hostile port's buffers full; nothing between the two is lost.
            assert_eq!(lost(&drops), 0, "{drops:?}");
        }
        text
    });
    drop(good);
    text
}

/// A NIC whose rings run, and then does something to its rings.
fn with_running_nic(options: Options, act: impl FnOnce(&mut Nic)) -> String {
    against(|plane| {
        let mut nic = plane.nic(BAD, options);
        act(&mut nic);
        nic.wire.wait_for_hang_up();
    })
}

/// A NIC whose rings run, and that does something to its receive ring; then a neighbour says
/// something to it.
fn with_spoken_to_nic(act: impl FnOnce(&mut Nic)) -> String {
    against(|plane| {
        let options = Options {
            post: false,
            ..Options::default()
        };
        let mut nic = plane.nic(BAD, options);
        let pin = Order::SetResidency {
            mac: Mac::from_octets(frame::mac(BAD)),
            port: PortId(BAD),
        };
        plane.order(&pin, None);
        act(&mut nic);
        let mut neighbour = plane.nic(3, Options::default());
        let bytes = frame::numbered(frame::mac(BAD), frame::mac(3), 1, 500);
        neighbour.wait_to_send(&bytes, Layout::One);
        nic.wire.wait_for_hang_up();
        neighbour.wait_until_sent();
    })
}

/// The usual NIC whose rings run, and then does something to them.
fn with_nic(act: impl FnOnce(&mut Nic)) -> String {
    with_running_nic(Options::default(), act)
}

/// A front-end that says something else than a handshake.
fn with_wire(act: impl FnOnce(&Wire)) -> String {
    against(|plane| {
        let wire = plane.attach(BAD);
        act(&wire);
        wire.wait_for_hang_up();
    })
}

/// The back-end may have hung up already.
fn ignore(_still_there: bool) {}

fn assert_names(text: &str, cause: &str) {
    assert!(text.contains(cause), "{text:?} does not say {cause:?}");
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

/// Descriptors of no use.
fn junk(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| event()).collect()
}

fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

/// Make one descriptor, as it is, available in the transmit ring.
fn transmit(nic: &mut Nic, buffer: Buffer, flags: u16, next: u16) {
    nic.tx.set_descriptor(0, buffer, flags, next);
    nic.tx.offer(0);
    nic.tx.publish_and_kick();
    nic.tx.kick();
}

const SOME: Buffer = Buffer {
    address: 0x4000,
    length: 100,
};

const LARGE: Buffer = Buffer {
    address: 0x4000,
    length: 1600,
};

// Messages.

#[test]
fn malformed_message_of_an_unknown_number() {
    let text = with_wire(|wire| ignore(wire.send(99, &[], &[])));
    assert_names(&text, "no message 99");
}

#[test]
fn malformed_message_of_another_version() {
    let text = with_wire(|wire| ignore(wire.send_raw(&message(1, 2, &[]), &[])));
    assert_names(&text, "version 2");
}

#[test]
fn malformed_message_that_was_not_negotiated() {
    for request in [6, 7, 21, 26, 31, 32, 33, 35, 41, 42, 43] {
        let text = with_wire(|wire| ignore(wire.send(request, &number(0), &[])));
        assert_names(&text, "not negotiated");
    }
}

#[test]
fn wrong_size_of_a_payload() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_FEATURES, &[0; 7], &[])));
    assert_names(&text, "payload of 7 bytes");
}

#[test]
fn wrong_size_larger_than_any_message() {
    let header: Vec<u8> = [request::SET_MEM_TABLE, VERSION, 0x4000_0000]
        .iter()
        .flat_map(|word: &u32| word.to_ne_bytes())
        .collect();
    let text = with_wire(|wire| ignore(wire.send_raw(&header, &[])));
    assert_names(&text, "payload of 1073741824 bytes");
}

#[test]
fn cve_2022_0669_extra_descriptors() {
    let fds = junk(1);
    for request in [
        request::GET_FEATURES,
        request::SET_OWNER,
        request::GET_STATUS,
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &[], &borrowed(&fds))));
        assert_names(&text, "1 descriptors instead of 0");
    }
    let fds = junk(20);
    let text =
        with_wire(|wire| ignore(wire.send(request::SET_VRING_CALL, &number(0), &borrowed(&fds))));
    assert_names(&text, "descriptors");
}

#[test]
fn missing_descriptors() {
    let ram = Ram::new(1 << 20);
    let region = ram.regions()[0].to_bytes();
    let table = [state(1, 0), region.clone()].concat();
    let single = [vec![0; 8], region].concat();
    for (request, payload) in [
        (request::SET_MEM_TABLE, table),
        (request::ADD_MEM_REG, single),
        (request::SET_VRING_KICK, number(0)),
        (request::SET_VRING_CALL, number(1)),
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &payload, &[])));
        assert_names(&text, "0 descriptors instead of 1");
    }
}

#[test]
fn cve_2020_10723_ring_number_past_the_last() {
    let fds = junk(1);
    for (request, payload, fds) in [
        (request::SET_VRING_NUM, state(2, 256), &[][..]),
        (request::SET_VRING_NUM, state(0x8000_0000, 256), &[]),
        (request::SET_VRING_BASE, state(200, 0), &[]),
        (request::SET_VRING_ADDR, addresses(255, 0, 0, 0), &[]),
        (request::GET_VRING_BASE, state(31, 0), &[]),
        (request::SET_VRING_ENABLE, state(u32::MAX, 1), &[]),
        (request::SET_VRING_KICK, number(0xff), &borrowed(&fds)),
        (request::SET_VRING_CALL, number(0x2f), &borrowed(&fds)),
    ] {
        let text = with_wire(|wire| ignore(wire.send(request, &payload, fds)));
        assert_names(&text, "there is no ring");
    }
}

#[test]
fn features_that_were_not_offered() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_FEATURES, &number(1 << 63), &[])));
    assert_names(&text, "0x8000000000000000");
    let log_shmfd = number(1 << 1);
    let text = with_wire(|wire| ignore(wire.send(request::SET_PROTOCOL_FEATURES, &log_shmfd, &[])));
    assert_names(&text, "not offered: 0x2");
}

#[test]
fn replies_that_are_never_read() {
    let text = against(|plane| {
        let wire = plane.attach(BAD);
        while wire.send(request::GET_FEATURES, &[], &[]) {}
    });
    assert_names(&text, "does not read its replies");
}

#[test]
fn a_message_cut_short_is_no_fault_but_the_end() {
    let mut plane = Plane::new();
    let wire = plane.attach(BAD);
    assert!(wire.send_raw(
        &message(request::SET_FEATURES, VERSION, &number(0))[..15],
        &[]
    ));
    drop(wire);
    assert_eq!(plane.detached(BAD).0, Reason::Gone);
}

#[test]
fn a_failure_is_acknowledged_before_the_port_is_lost() {
    let mut plane = Plane::new();
    let wire = plane.attach(BAD);
    wire.send(
        request::SET_PROTOCOL_FEATURES,
        &number(features::protocol::REPLY_ACK),
        &[],
    );
    let bad = message(request::SET_VRING_NUM, VERSION | NEED_REPLY, &state(0, 3));
    assert!(wire.send_raw(&bad, &[]));
    assert_eq!(wire.number(request::SET_VRING_NUM), 1);
    assert_names(&plane.fault(BAD), "not a power of two");
}

// Memory.

fn map(region: Region, ram: &Ram) -> String {
    let table = [state(1, 0), region.to_bytes()].concat();
    with_wire(|wire| ignore(wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()])))
}

#[test]
fn cve_2020_10722_memory_region_that_overflows() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    for region in [
        Region {
            guest: u64::MAX - 4096,
            ..good
        },
        Region {
            user: u64::MAX - 4096,
            ..good
        },
        Region {
            offset: u64::MAX - 4096,
            ..good
        },
        Region { size: 0, ..good },
        Region {
            size: u64::MAX,
            guest: 1,
            ..good
        },
    ] {
        assert_names(&map(region, &ram), "memory region at");
    }
}

#[test]
fn a_memory_region_past_the_end_of_its_file() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    let text = map(
        Region {
            size: good.size + 1,
            ..good
        },
        &ram,
    );
    assert_names(&text, "ends after its file (1048576 bytes)");
    let text = map(Region { offset: 1, ..good }, &ram);
    assert_names(&text, "ends after its file (1048576 bytes)");
}

#[test]
fn memory_regions_that_overlap() {
    let ram = Ram::new(1 << 20);
    let good = ram.regions()[0];
    let table = [state(2, 0), good.to_bytes(), good.to_bytes()].concat();
    let text = with_wire(|wire| {
        wire.send(request::SET_MEM_TABLE, &table, &[ram.fd(), ram.fd()]);
    });
    assert_names(&text, "overlaps");
}

#[test]
fn memory_that_is_not_memory() {
    let ram = Ram::new(1 << 20);
    let table = [state(1, 0), ram.regions()[0].to_bytes()].concat();
    let (read, _write) = rustix::pipe::pipe().unwrap();
    for fd in [event(), read] {
        let text =
            with_wire(|wire| ignore(wire.send(request::SET_MEM_TABLE, &table, &[fd.as_fd()])));
        assert_names(&text, "neither a memfd");
    }
}

#[test]
fn more_memory_regions_than_a_device_may_have() {
    let ram = Ram::new(1 << 20);
    let text = with_wire(|wire| {
        for index in 0..600 {
            let region = Region {
                guest: index << 12,
                size: 4096,
                user: index << 12,
                offset: 0,
            };
            let payload = [vec![0; 8], region.to_bytes()].concat();
            if !wire.send(request::ADD_MEM_REG, &payload, &[ram.fd()]) {
                break;
            }
        }
    });
    assert_names(&text, "too many regions");
}

#[test]
fn a_memory_region_removed_that_is_not_there() {
    let text = with_wire(|wire| ignore(wire.send(request::REM_MEM_REG, &[0; 40], &[])));
    assert_names(&text, "no memory region at 0x0");
}

#[test]
fn memory_truncated_in_use_sigbus() {
    let text = with_nic(|nic| {
        nic.ram.truncate(0);
        nic.tx.kick();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn memory_truncated_in_use_sigbus_in_the_frame_of_a_sender() {
    let text = against(|plane| {
        let mut nic = plane.nic(BAD, Options::default());
        let pin = Order::SetResidency {
            mac: Mac::from_octets(frame::mac(3)),
            port: PortId(3),
        };
        plane.order(&pin, None);
        let _neighbour = plane.nic(3, Options::default());
        // The rings and the beginning of the frame stay, the rest of it goes.
        let begin = frame::numbered(frame::mac(3), frame::mac(BAD), 0, 100);
        nic.ram.write(0x7000, &[vec![0; 12], begin].concat());
        nic.ram.truncate(0x8000);
        let gone = Buffer {
            address: 0x9000,
            length: 1000,
        };
        nic.tx.set_descriptor(1, gone, 0, 0);
        let begin = Buffer {
            address: 0x7000,
            length: 112,
        };
        transmit(&mut nic, begin, NEXT, 1);
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn memory_truncated_in_use_sigbus_in_the_buffers_of_a_receiver() {
    let text = with_spoken_to_nic(|nic| {
        nic.ram.truncate(0x8000);
        let buffer = Buffer {
            address: 0x9000,
            ..LARGE
        };
        nic.rx.set_descriptor(0, buffer, WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "truncated its memory");
}

#[test]
fn a_ring_taken_out_of_memory_while_it_runs() {
    let spare = Ram::new(1 << 20);
    let region = Region {
        guest: 1 << 40,
        user: 1 << 41,
        ..spare.regions()[0]
    };
    let table = [state(1, 0), region.to_bytes()].concat();
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_MEM_TABLE, &table, &[spare.fd()])));
    assert_names(&text, "descriptor table is not in guest memory");
    let text = with_nic(|nic| {
        let own = [vec![0; 8], nic.ram.regions()[0].to_bytes()].concat();
        nic.wire.send(request::REM_MEM_REG, &own, &[]);
    });
    assert_names(&text, "descriptor table is not in guest memory");
}

// Setting up rings.

/// Start ring 1 at these addresses of a front-end with 1 MiB of memory.
fn start_at(size: u32, place: [u64; 3]) -> String {
    let ram = Ram::new(1 << 20);
    let base = ram.regions()[0].user;
    let [descriptors, used, available] = place.map(|at| base.wrapping_add(at));
    let fds = junk(1);
    with_wire(|wire| {
        let table = [state(1, 0), ram.regions()[0].to_bytes()].concat();
        wire.send(request::SET_MEM_TABLE, &table, &[ram.fd()]);
        wire.send(request::SET_VRING_NUM, &state(1, size), &[]);
        let place = addresses(1, descriptors, used, available);
        wire.send(request::SET_VRING_ADDR, &place, &[]);
        wire.send(request::SET_VRING_KICK, &number(1), &borrowed(&fds));
    })
}

#[test]
fn ring_outside_memory() {
    let end = 1 << 20;
    assert_names(
        &start_at(256, [end, 0, 0]),
        "descriptor table is not in guest memory",
    );
    assert_names(
        &start_at(256, [end - 4080, 0, 0]),
        "descriptor table is not",
    );
    assert_names(&start_at(256, [0, end - 2052, 0]), "used ring is not");
    assert_names(&start_at(256, [0, 0, end - 516]), "available ring is not");
    assert_names(
        &start_at(256, [u64::MAX - 1024, 0, 0]),
        "descriptor table is not",
    );
    assert_names(
        &start_at(256, [0_u64.wrapping_sub(0x7f00_0000_1000), 0, 0]),
        "descriptor table is not",
    );
}

#[test]
fn ring_that_is_not_aligned() {
    assert_names(&start_at(256, [8, 0, 0]), "not aligned");
    assert_names(&start_at(256, [0, 2, 0]), "not aligned");
    assert_names(&start_at(256, [0, 0, 1]), "not aligned");
}

#[test]
fn ring_of_impossible_size() {
    for size in [0, 3, 65_536, u32::MAX] {
        assert_names(&start_at(size, [0; 3]), "not a power of two");
    }
}

#[test]
fn a_kick_before_the_ring_is_described() {
    let fds = junk(1);
    let text = with_wire(|wire| {
        wire.send(request::SET_VRING_KICK, &number(0), &borrowed(&fds));
    });
    assert_names(&text, "started before its size and addresses");
}

#[test]
fn a_running_ring_is_not_resized() {
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_VRING_NUM, &state(0, 128), &[])));
    assert_names(&text, "changes ring 0 while it runs");
    let text = with_nic(|nic| ignore(nic.wire.send(request::SET_VRING_BASE, &state(1, 5), &[])));
    assert_names(&text, "changes ring 1 while it runs");
}

#[test]
fn a_base_past_the_last_index() {
    let text = with_wire(|wire| ignore(wire.send(request::SET_VRING_BASE, &state(0, 65_536), &[])));
    assert_names(&text, "message 10");
}

#[test]
fn a_kick_descriptor_that_tells_of_nothing() {
    let ram = Ram::new(1 << 20);
    let text = with_nic(|nic| {
        ignore(
            nic.wire
                .send(request::SET_VRING_KICK, &number(1), &[ram.fd()]),
        )
    });
    assert_names(&text, "descriptor");
}

#[test]
fn a_call_descriptor_that_cannot_be_written() {
    let (read, _write) = rustix::pipe::pipe().unwrap();
    let text = with_nic(|nic| {
        nic.wire
            .send(request::SET_VRING_CALL, &number(1), &[read.as_fd()]);
        nic.sync();
        nic.tx.ask_for_call();
        // To itself, so that nobody else gets to see it.
        let bytes = frame::numbered(frame::mac(1), frame::mac(BAD), 0, 13 + 17);
        nic.send(&bytes[..13], Layout::One);
    });
    assert_names(&text, "descriptor");
}

#[test]
fn a_call_descriptor_that_would_block() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let full = event();
    rustix::io::write(&full, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let nic = plane.nic(BAD, Options::default());
    nic.wire
        .send(request::SET_VRING_CALL, &number(0), &[full.as_fd()]);
    nic.sync();
    nic.rx.ask_for_call();
    for number in 0..3 {
        let bytes = frame::numbered(frame::BROADCAST, frame::mac(1), number, 60);
        a.wait_to_send(&bytes, Layout::One);
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
    exchange((&mut a, 1), (&mut b, 2), 100, 100);
}

// Driving rings.

#[test]
fn descriptor_loop() {
    let text = with_nic(|nic| transmit(nic, SOME, NEXT, 0));
    assert_names(&text, "loops or is too long");
    let text = with_nic(|nic| {
        nic.tx.set_descriptor(1, SOME, NEXT, 2);
        nic.tx.set_descriptor(2, SOME, NEXT, 1);
        transmit(nic, SOME, NEXT, 1);
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn descriptor_loop_in_a_receive_ring() {
    let text = with_spoken_to_nic(|nic| {
        nic.rx.set_descriptor(0, SOME, NEXT | WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "ring 0: a descriptor chain loops");
}

#[test]
fn huge_chain() {
    let options = Options {
        size: 2048,
        ..Options::default()
    };
    let text = with_running_nic(options, |nic| {
        for index in 0..2047 {
            let buffer = Buffer {
                address: 0x40000,
                length: 1,
            };
            nic.tx.set_descriptor(index, buffer, NEXT, index + 1);
        }
        nic.tx.offer(0);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn huge_chain_of_many_gigabytes() {
    let text = with_nic(|nic| {
        let all = Buffer {
            address: 0,
            length: 1 << 20,
        };
        for index in 0..255 {
            nic.tx.set_descriptor(index, all, NEXT, index + 1);
        }
        nic.tx.set_descriptor(
            255,
            Buffer {
                length: u32::MAX,
                ..all
            },
            0,
            0,
        );
        nic.tx.offer(0);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "ring 1:");
}

#[test]
fn zero_length_descriptor() {
    let text = with_nic(|nic| transmit(nic, Buffer { length: 0, ..SOME }, 0, 0));
    assert_names(&text, "has no bytes");
}

#[test]
fn a_chain_shorter_than_the_network_header() {
    let text = with_nic(|nic| transmit(nic, Buffer { length: 11, ..SOME }, 0, 0));
    assert_names(&text, "11 bytes has no room for the network header");
}

#[test]
fn cve_2018_1059_buffer_that_is_not_all_in_memory() {
    let cases = [(u64::MAX - 50, 100), (1 << 45, 100)];
    for (address, length) in cases {
        let text = with_nic(|nic| transmit(nic, Buffer { address, length }, 0, 0));
        assert_names(&text, "outside guest memory");
    }
    // It begins inside the last region.
    let text = with_nic(|nic| {
        let end = nic.ram.regions().last().map(|last| last.guest + last.size);
        let buffer = Buffer {
            address: end.unwrap() - 50,
            length: 100,
        };
        transmit(nic, buffer, 0, 0);
    });
    assert_names(&text, "outside guest memory");
}

#[test]
fn cve_2019_18960_buffer_across_regions_is_followed_not_overrun() {
    // Two regions whose bytes do not adjoin in this process: a frame across both arrives whole.
    let mut plane = Plane::new();
    let options = Options {
        regions: 2,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, options), plane.nic(2, Options::default())];
    common::introduce(&mut nics, &[1, 2]);
    let [a, b] = &mut nics;
    let border = a.ram.regions()[1].guest;
    let bytes = frame::numbered(frame::mac(2), frame::mac(1), 9, 1000);
    a.ram
        .write(border - 500, &[vec![0; 12], bytes.clone()].concat());
    assert!(
        a.tx.add(&[Buffer {
            address: border - 500,
            length: 1012
        }])
        .is_some()
    );
    a.tx.publish_and_kick();
    assert_eq!(b.wait_to_receive().frame, bytes);
}

#[test]
fn cve_2018_1059_hole_between_regions() {
    let text = against(|plane| {
        let mut nic = Nic::new(plane.attach(BAD), Options::default());
        nic.start(|| {});
        plane.running(BAD);
        let spare = Ram::new(1 << 20);
        let end = nic.ram.regions()[0].size;
        let region = Region {
            guest: end + 4096,
            user: 1 << 41,
            ..spare.regions()[0]
        };
        let payload = [vec![0; 8], region.to_bytes()].concat();
        nic.wire.send(request::ADD_MEM_REG, &payload, &[spare.fd()]);
        nic.sync();
        transmit(
            &mut nic,
            Buffer {
                address: end - 100,
                length: 5000,
            },
            0,
            0,
        );
        nic.wire.wait_for_hang_up();
    });
    assert_names(&text, "outside guest memory");
}

#[test]
fn buffers_of_the_wrong_direction() {
    let text = with_nic(|nic| transmit(nic, SOME, WRITE, 0));
    assert_names(&text, "writable in a transmit ring");
    let text = with_spoken_to_nic(|nic| {
        nic.rx.set_descriptor(0, LARGE, 0, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(&text, "ring 0: a descriptor is read-only in a receive ring");
}

#[test]
fn cve_2020_10725_receive_buffer_outside_memory() {
    let text = with_spoken_to_nic(|nic| {
        let buffer = Buffer {
            address: 1 << 45,
            ..LARGE
        };
        nic.rx.set_descriptor(0, buffer, WRITE, 0);
        nic.rx.offer(0);
        nic.rx.publish_and_kick();
    });
    assert_names(
        &text,
        "ring 0: a descriptor names 1600 bytes at 0x200000000000",
    );
}

#[test]
fn cve_2021_3748_mergeable_buffers_too_small_for_the_header() {
    let text = with_spoken_to_nic(|nic| {
        let buffer = Buffer {
            length: 11,
            ..LARGE
        };
        for head in 0..60 {
            nic.rx.set_descriptor(head, buffer, WRITE, 0);
            nic.rx.offer(head);
        }
        nic.rx.publish_and_kick();
    });
    assert_names(
        &text,
        "ring 0: a chain of 11 bytes has no room for the network header",
    );
}

#[test]
fn an_available_index_of_a_receive_ring_that_runs_ahead() {
    let text = with_spoken_to_nic(|nic| nic.rx.lie(300));
    assert_names(&text, "ring 0: available index 300");
}

#[test]
fn chain_heads_past_the_table() {
    let text = with_nic(|nic| {
        nic.tx.offer(256);
        nic.tx.publish_and_kick();
    });
    assert_names(&text, "chain head 256 is past the descriptor table");
    let text = with_nic(|nic| transmit(nic, SOME, NEXT, 256));
    assert_names(&text, "points to 256, past its table");
}

#[test]
fn an_available_index_that_runs_ahead() {
    let text = with_nic(|nic| {
        nic.tx.lie(257);
        nic.tx.kick();
    });
    assert_names(&text, "available index 257 is more than 256 ahead of 0");
    let text = with_nic(|nic| {
        nic.tx.lie(0xffff);
        nic.tx.kick();
    });
    assert_names(&text, "available index 65535");
}

/// Send through an indirect table written by `fill` at 0x4000.
fn through_table(length: u32, flags: u16, fill: impl FnOnce(&Ram)) -> String {
    with_nic(|nic| {
        fill(&nic.ram);
        transmit(
            nic,
            Buffer {
                address: 0x4000,
                length,
            },
            flags,
            0,
        );
    })
}

#[test]
fn indirect_in_indirect() {
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, INDIRECT, 0));
    });
    assert_names(&text, "inside another");
}

#[test]
fn indirect_tables_that_cannot_be() {
    for length in [0, 8, 17] {
        let text = through_table(length, INDIRECT, |_| {});
        assert_names(&text, "not a whole number of descriptors long");
    }
    let text = through_table(16, INDIRECT | NEXT, |_| {});
    assert_names(&text, "followed by another");
    let text = through_table(0x4000_0000, INDIRECT, |_| {});
    assert_names(&text, "not in one memory region");
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, NEXT, 2));
    });
    assert_names(&text, "points to 2, past its table");
    let text = through_table(32, INDIRECT, |ram| {
        ram.write(0x4000, &descriptor(SOME, NEXT, 0));
    });
    assert_names(&text, "loops or is too long");
}

#[test]
fn indirect_without_being_negotiated() {
    let options = Options {
        features: features::PLAIN & !features::INDIRECT_DESC,
        ..Options::default()
    };
    let text = with_running_nic(options, |nic| {
        nic.ram.write(0x4000, &descriptor(SOME, 0, 0));
        transmit(
            nic,
            Buffer {
                address: 0x4000,
                length: 16,
            },
            INDIRECT,
            0,
        );
    });
    assert_names(&text, "without being negotiated");
}

// Headers.

fn with_header(flags: u8, gso: u8, words: [u16; 4], length: usize) -> String {
    let mut header = vec![flags, gso];
    for word in words {
        header.extend(word.to_le_bytes());
    }
    header.extend([0, 0]);
    let options = Options {
        features: features::LINUX,
        ..Options::default()
    };
    with_running_nic(options, |nic| {
        let bytes = frame::numbered(frame::mac(2), frame::mac(BAD), 0, length);
        nic.send_with(&header, &bytes, Layout::One);
    })
}

#[test]
fn cve_2024_11614_csum_start_past_frame() {
    for (start, offset) in [
        (100, 0),
        (99, 0),
        (65_535, 65_535),
        (34, 65),
        (13, 0),
        (0, 16),
    ] {
        let text = with_header(1, 0, [0, 0, start, offset], 100);
        assert_names(&text, "the checksum lies outside the frame");
    }
}

#[test]
fn gso_headers_that_contradict_themselves() {
    let cases = [
        ((1, 1, [54, 0, 34, 16]), "segments of no bytes"),
        ((0, 1, [54, 1000, 34, 16]), "no partial checksum"),
        ((1, 3, [54, 1000, 34, 16]), "unknown way to cut"),
        ((1, 0x7f, [54, 1000, 34, 16]), "unknown way to cut"),
        ((1, 5, [54, 1000, 34, 6]), "was not negotiated"),
        ((1, 0x81, [54, 1000, 34, 16]), "ECN without"),
    ];
    for ((flags, gso, words), cause) in cases {
        assert_names(&with_header(flags, gso, words, 3000), cause);
    }
}

#[test]
fn offloads_that_were_not_negotiated() {
    let text = with_nic(|nic| {
        let bytes = frame::numbered(frame::mac(2), frame::mac(BAD), 0, 100);
        nic.send_with(&[1, 0, 0, 0, 0, 0, 34, 0, 16, 0, 0, 0], &bytes, Layout::One);
    });
    assert_names(&text, "without the CSUM feature");
}

#[test]
fn cve_2022_2132_header_in_many_descriptors() {
    // Right, if odd: it is followed, not faulted.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for layout in [Layout::Pieces(1), Layout::Indirect(1), Layout::Pieces(3)] {
        let bytes = frame::numbered(frame::mac(2), frame::mac(1), 1, 100);
        a.wait_to_send(&bytes, layout);
        assert_eq!(b.wait_to_receive().frame, bytes);
    }
}

#[test]
fn cve_2024_11614_header_that_changes_while_it_is_checked() {
    // A guest that rewrites its header all the time: whatever is delivered was checked.
    let mut plane = Plane::new();
    let options = Options {
        features: features::LINUX,
        ..Options::default()
    };
    let mut nics = [plane.nic(1, options), plane.nic(2, options)];
    common::introduce(&mut nics, &[1, 2]);
    let [a, b] = &mut nics;
    let over = AtomicBool::new(false);
    let bytes = frame::tcp(frame::mac(2), frame::mac(1), 1, &[0; 500]);
    let at = 0x8000;
    let ram = std::sync::Arc::clone(&a.ram);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ram.write(at, &[1, 0, 54, 0, 0, 0, 34, 0, 16, 0, 0, 0]);
                // In range for a checksum of a longer frame only: a fault if it is read.
                ram.write(at + 6, &34_u16.to_le_bytes());
                ram.write(at, &[0]);
            }
        });
        for _ in 0..2000 {
            ram.write(at + 12, &bytes);
            let length = 12 + bytes.len() as u32;
            assert!(
                a.tx.add(&[Buffer {
                    address: at,
                    length
                }])
                .is_some()
            );
            a.tx.publish_and_kick();
            let got = b.wait_to_receive();
            match got.header[0] {
                0 => assert_eq!(got.header[..10], [0; 10]),
                1 => assert_eq!(got.header[6..10], [34, 0, 16, 0]),
                other => panic!("flags {other}"),
            }
            while a.tx.take_used().is_none() {
                if !a.tx.ask_for_call() {
                    a.tx.wait_for_call();
                }
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

// The many.

#[test]
fn hundred_connects() {
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for round in 0..100 {
        let wire = plane.attach(BAD);
        match round % 3 {
            0 => assert!(wire.send(99, &[], &[])),
            1 => assert!(wire.send_raw(&[0; 5], &[])),
            _ => {}
        }
        drop(wire);
        let (reason, _) = plane.detached(BAD);
        match round % 3 {
            0 => assert!(matches!(reason, Reason::Fault(_)), "{reason:?}"),
            _ => assert_eq!(reason, Reason::Gone),
        }
        exchange((&mut a, 1), (&mut b, 2), 10, 100);
    }
}

#[test]
fn dpdk_21d9fb6bad_teardown_in_any_state() {
    // The front-end goes away after each message of the handshake in turn.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    for stop_after in 0..24 {
        let nic = Nic::new(plane.attach(BAD), Options::default());
        let said = std::cell::Cell::new(0);
        let mut nic = Some(nic);
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut nic = nic.take().unwrap();
            nic.start(|| {
                said.set(said.get() + 1);
                if said.get() > stop_after {
                    std::panic::resume_unwind(Box::new(()));
                }
            });
        }));
        drop(gone);
        assert_eq!(plane.detached(BAD).0, Reason::Gone);
        exchange((&mut a, 1), (&mut b, 2), 10, 100);
    }
}

#[test]
fn everything_at_random() {
    // No fault is asked for here; only that the neighbours go on.
    let mut plane = Plane::new();
    let [mut a, mut b] = plane.pair(1, 2);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let mut nic = plane.nic(
            BAD,
            Options {
                size: 16,
                features: features::LINUX,
                ..Options::default()
            },
        );
        for _ in 0..20 {
            let queue = if random() % 2 == 0 {
                &mut nic.tx
            } else {
                &mut nic.rx
            };
            for index in 0..16 {
                let buffer = Buffer {
                    address: random() % 0x9000,
                    length: (random() % 3000) as u32,
                };
                queue.set_descriptor(index, buffer, (random() % 8) as u16, (random() % 18) as u16);
            }
            for _ in 0..random() % 5 {
                queue.offer((random() % 17) as u16);
            }
            let _ = queue.publish();
            queue.kick();
        }
        drop(nic);
        plane.detached(BAD);
        exchange((&mut a, 1), (&mut b, 2), 5, 100);
        while b.receive().is_some() {}
    }
}
