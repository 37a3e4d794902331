//! The back-end closes descriptors of messages that it refuses. This is the only test of its binary,
//! because it counts the descriptors of the process.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::os::fd::AsFd;

use front_end::wire::{VERSION, message, number, request};
use rustix::event::{EventfdFlags, eventfd};

fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn cve_2022_0669_descriptors_of_refused_messages_are_closed() {
    let events: Vec<_> = (0..32)
        .map(|_| eventfd(0, EventfdFlags::CLOEXEC).unwrap())
        .collect();
    let before = open();
    for (request, payload, counts) in [
        (request::GET_FEATURES, vec![], vec![1, 8, 9, 20, 32]),
        (request::SET_VRING_KICK, number(0), vec![2, 8, 9, 20, 32]),
        (request::SET_VRING_KICK, number(1 << 8), vec![1, 9]),
        (request::SET_MEM_TABLE, vec![0; 8], vec![1, 8, 32]),
        (99, vec![], vec![1, 8]),
    ] {
        for count in counts {
            let (wire, mut backend) = common::connect();
            let fds: Vec<_> = events.iter().take(count).map(AsFd::as_fd).collect();
            assert!(wire.send(request, &payload, &fds));
            assert!(common::serve(&mut backend).is_err(), "{request}, {count}");
            drop((wire, backend));
            assert_eq!(open(), before, "message {request} with {count}");
        }
    }
    // A descriptor with every byte of a message that never ends.
    let (wire, mut backend) = common::connect();
    let mut refused = false;
    for byte in message(request::SET_FEATURES, VERSION, &number(0)) {
        let fds: Vec<_> = events.iter().take(1).map(AsFd::as_fd).collect();
        if !wire.send_raw(&[byte], &fds) {
            break;
        }
        refused |= backend.receive().is_err();
    }
    assert!(refused);
    drop((wire, backend));
    assert_eq!(open(), before);
    // Accepted descriptors are closed when another one replaces them or the ring stops.
    let (nic, mut backend) = common::device(front_end::Options::default());
    let running = open();
    for _ in 0..10 {
        nic.start_rings_again();
        common::serve(&mut backend).unwrap();
    }
    assert_eq!(open(), running);
    assert!(nic.wire.send(request::RESET_OWNER, &[], &[]));
    common::serve(&mut backend).unwrap();
    assert_eq!(open(), running - 4);
}
