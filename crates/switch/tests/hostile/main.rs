//! Hostile front-ends against a whole data plane, by class of invalid input: the hostile port is detached
//! for a fault that names the cause, and two well-behaved VMs exchange frames before, during and after the
//! attack without a drop.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

#[path = "../common/mod.rs"]
mod common;

mod chains;
mod headers;
mod log;
mod many;
mod memory;
mod messages;
mod set_up;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Plane, exchange, lost};
use front_end::queue::{INDIRECT, NEXT, WRITE, descriptor};
use front_end::wire::{NEED_REPLY, VERSION, addresses, message, number, request, state};
use front_end::{Buffer, Layout, Nic, Options, Ram, Region, Wire, features, frame};
use switch::control::{Order, PortId, Reason};
use switch::mac::Mac;

const BAD: u16 = 7;

/// Runs `attack` as port 7 while two well-behaved VMs exchange frames; returns the fault for which the
/// hostile port was detached.
fn against(attack: impl FnOnce(&mut Plane)) -> String {
    // Two workers: one removes the port while the other uses it.
    let mut plane = Plane::with_workers(2);
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
        let rounds = traffic.join().unwrap();
        let text = text.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        plane.assert_not_detached_again(BAD);
        for (port, greeted) in [(1, 1), (2, 1)] {
            let counters = plane.counters(port);
            assert_eq!(counters.tx_frames, rounds * 100 + greeted);
            let drops = counters.drops;
            // Flooded frames may find the hostile port full; no frame between the two VMs is dropped.
            assert_eq!(lost(&drops), 0, "{drops:?}");
        }
        text
    });
    drop(good);
    text
}

/// Calls `act` with a NIC whose rings run; returns the fault.
fn with_running_nic(options: Options, act: impl FnOnce(&mut Nic)) -> String {
    against(|plane| {
        let mut nic = plane.nic(BAD, options);
        act(&mut nic);
        nic.wire.wait_for_hang_up();
    })
}

/// Calls `act` with a NIC whose rings run, and then sends frames to the NIC; returns the fault.
fn with_receiving_nic(act: impl FnOnce(&mut Nic)) -> String {
    against(|plane| {
        let options = Options {
            post: false,
            ..Options::default()
        };
        let mut nic = plane.nic(BAD, options);
        let pin = Order::SetFdbEntry {
            mac: Mac::from_octets(frame::mac(BAD)),
            vlan: 0,
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

/// Calls `act` with a NIC with default options whose rings run; returns the fault.
fn with_nic(act: impl FnOnce(&mut Nic)) -> String {
    with_running_nic(Options::default(), act)
}

/// Calls `act` with the socket of a front-end that has sent nothing; returns the fault.
fn with_wire(act: impl FnOnce(&Wire)) -> String {
    against(|plane| {
        let wire = plane.attach(BAD);
        act(&wire);
        wire.wait_for_hang_up();
    })
}

/// Ignores the result of a send: the back-end may have closed the socket already.
fn ignore(_still_there: bool) {}

fn assert_names(text: &str, cause: &str) {
    assert!(text.contains(cause), "{text:?} does not say {cause:?}");
}

fn event() -> OwnedFd {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap()
}

/// Descriptors that no message needs.
fn junk(count: usize) -> Vec<OwnedFd> {
    (0..count).map(|_| event()).collect()
}

fn borrowed(fds: &[OwnedFd]) -> Vec<BorrowedFd<'_>> {
    fds.iter().map(AsFd::as_fd).collect()
}

/// Makes one descriptor available in the transmit ring, unchanged.
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
