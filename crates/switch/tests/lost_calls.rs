//! A driver that sleeps until a call receives every frame, in whichever order its back-end was started. In
//! QEMU's order of messages, a frame may be delivered after `SET_VRING_KICK` has started the ring and
//! before `SET_VRING_CALL` has set the call descriptor. Linux's virtio-net has no watchdog for reception: a
//! single lost call stalls its queue for good.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use std::cell::RefCell;

use common::bare::{attach, messages};
use front_end::{Layout, Nic, Options, Wire, features, frame};
use switch::context::WorkerContext;
use switch::mac::Mac;
use switch::switch::Switch;

const SENDER: u16 = 0;
const RECEIVER: u16 = 1;
const RESTARTS: u32 = 1000;

fn options(replies: bool) -> Options {
    Options {
        features: features::PLAIN | features::EVENT_IDX,
        replies,
        ..Options::default()
    }
}

/// A switch with the sender started, and the receiver's socket attached.
fn switch_for(sender: &mut Nic) -> (Switch, Wire) {
    let mut switch = Switch::default();
    let (wire, theirs) = Wire::pair();
    attach(&mut switch, SENDER, theirs);
    sender.resume(wire, || messages(&mut switch, SENDER));
    let (wire, theirs) = Wire::pair();
    attach(&mut switch, RECEIVER, theirs);
    for number in [SENDER, RECEIVER] {
        let mac = Mac::from_octets(frame::mac(number));
        assert!(switch.table.pin(mac, number, 0));
    }
    (switch, wire)
}

fn send(switch: &mut Switch, sender: &mut Nic) {
    let bytes = frame::numbered(frame::mac(RECEIVER), frame::mac(SENDER), 0, 60);
    sender.send(&bytes, Layout::One);
    switch.serve(&mut WorkerContext::new(0), SENDER);
    assert!(switch.take_fault().is_none());
}

/// Does what a driver does after a call: takes all frames and enables the next call. Returns the number of
/// frames.
fn take_all(nic: &mut Nic) -> u32 {
    let mut taken = 0;
    loop {
        while nic.receive().is_some() {
            taken += 1;
        }
        if !nic.rx.ask_for_call() {
            return taken;
        }
    }
}

/// Restarts the receiver's back-end a thousand times, and sends a frame after each message, or only after
/// each start. Each time, the driver must be called for the frames that were delivered.
fn restarts_under_traffic(replies: bool, every_message: bool) {
    let mut sender = Nic::new(Wire::pair().0, options(false));
    let mut receiver = Nic::new(Wire::pair().0, options(replies));
    let mut between = 0;
    for restart in 0..RESTARTS {
        let (switch, wire) = switch_for(&mut sender);
        let switch = RefCell::new(switch);
        let used = receiver.rx.used_index();
        receiver.resume(wire, || {
            let switch = &mut switch.borrow_mut();
            messages(switch, RECEIVER);
            if every_message {
                send(switch, &mut sender);
            }
        });
        between += u32::from(receiver.rx.used_index() != used);
        let called = receiver.rx.calls() > 0;
        let waiting = receiver.rx.used_index() != used;
        assert!(called || !waiting, "restart {restart}: no call");
        take_all(&mut receiver);
        // The queue works: the next frame causes a call.
        send(&mut switch.borrow_mut(), &mut sender);
        assert!(
            receiver.rx.calls() > 0,
            "restart {restart}: the queue is dead"
        );
        assert_eq!(take_all(&mut receiver), 1, "restart {restart}");
    }
    assert_eq!(between > 0, every_message, "frames between KICK and CALL");
}

#[test]
fn vhost_user_starting_and_stopping_rings_a_frame_between_kick_and_call_calls() {
    restarts_under_traffic(false, true);
}

#[test]
fn the_same_with_a_front_end_that_waits_for_replies() {
    restarts_under_traffic(true, true);
}

#[test]
fn restarts_without_a_frame_leave_the_queue_alive() {
    restarts_under_traffic(false, false);
}

#[test]
fn a_call_is_repeated_after_a_back_end_died_between_the_used_index_and_the_call() {
    let mut sender = Nic::new(Wire::pair().0, options(false));
    let mut receiver = Nic::new(Wire::pair().0, options(false));
    for restart in 0..RESTARTS {
        let (mut switch, wire) = switch_for(&mut sender);
        receiver.resume(wire, || messages(&mut switch, RECEIVER));
        assert!(
            restart == 0 || receiver.rx.calls() > 0,
            "restart {restart}: no call"
        );
        let expected = u32::from(restart > 0);
        assert_eq!(take_all(&mut receiver), expected, "restart {restart}");
        let _first = receiver.rx.calls();
        send(&mut switch, &mut sender);
        // Discard the call, as if the back-end had been killed before it wrote the call.
        assert!(receiver.rx.calls() > 0);
    }
}
