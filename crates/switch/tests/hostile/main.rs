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

/// Two good neighbours and whatever `attack` does as port 7, at the same time; gives the fault
/// the hostile port was detached for.
fn against(attack: impl FnOnce(&mut Plane)) -> String {
    // Two workers: what one takes apart the other is using.
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
