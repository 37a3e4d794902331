//! Receivers that are slow, but not stuck: no frame is dropped or reordered. The test drives the switch on
//! one thread, with a clock that stands still.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod common;

use common::bare::{attach, messages};
use common::lost;
use front_end::{Layout, Nic, Options, Wire, frame};
use switch::context::WorkerContext;
use switch::control::Drops;
use switch::fdb::FdbKey;
use switch::guard::{Rules, VlanRules};
use switch::mac::Mac;
use switch::switch::Switch;

/// The sender, a receiver with too few buffers, and a third station.
const STATIONS: [u16; 3] = [0, 1, 2];

/// A switch with these stations, whose addresses are pinned in this VLAN.
fn world(vlan: u16, rules: [Rules; 3]) -> (Switch, WorkerContext, [Nic; 3]) {
    let mut switch = Switch::default();
    for (number, rules) in STATIONS.into_iter().zip(rules) {
        switch.set_rules(number, rules);
    }
    let nics = STATIONS.map(|number| {
        let (wire, theirs) = Wire::pair();
        attach(&mut switch, number, theirs);
        let mac = Mac::from_octets(frame::mac(number));
        assert!(switch.table.pin(FdbKey::new(mac, vlan), number, 0));
        let options = Options {
            post: number != 1,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| messages(&mut switch, number));
        nic
    });
    (switch, WorkerContext::new(0), nics)
}

fn offer(nic: &mut Nic, frames: &[Vec<u8>]) {
    for bytes in frames {
        assert!(nic.enqueue(&[0; 12], bytes, Layout::One));
    }
    nic.tx.publish_and_kick();
}

fn drops(switch: &mut Switch, port: u16) -> Drops {
    switch.port_mut(port).unwrap().counters().drops
}

/// Serves the sender until no frame is forwarded.
fn serve(switch: &mut Switch, context: &mut WorkerContext) {
    while switch.serve(context, 0).moved > 0 {}
    assert!(switch.take_fault().is_none());
}

fn to(station: u16, number: u64, length: usize) -> Vec<u8> {
    frame::numbered(frame::mac(station), frame::mac(0), number, length)
}

#[test]
fn a_slow_receiver_gets_everything_in_order() {
    const COUNT: u64 = 3000;
    let (mut switch, mut context, [mut a, mut b, _c]) = world(0, Default::default());
    let (mut sent, mut got) = (0, 0);
    while got < COUNT {
        // Fill the sender's ring.
        while sent < COUNT && a.send(&to(1, sent, 200), Layout::One) {
            sent += 1;
        }
        serve(&mut switch, &mut context);
        // Three buffers at a time.
        b.post(3);
        b.rx.publish_and_kick();
        serve(&mut switch, &mut context);
        for _ in 0..3.min(COUNT - got) {
            assert_eq!(b.receive().unwrap().frame, to(1, got, 200));
            got += 1;
        }
        a.reclaim();
    }
    assert_eq!(a.in_flight(), 0);
    let counters = switch.port_mut(0).unwrap().counters();
    assert_eq!((lost(&counters.drops), counters.tx_frames), (0, COUNT));
    assert!(counters.backpressured > 0, "nothing was held back");
}

#[test]
fn order_towards_a_receiver_is_kept_when_a_smaller_frame_would_fit() {
    let (mut switch, mut context, [mut a, mut b, mut c]) = world(0, Default::default());
    // A frame that needs three buffers waits. Behind a frame for the other station is a small one.
    offer(&mut a, &[to(1, 0, 4000), to(2, 1, 100), to(1, 2, 100)]);
    serve(&mut switch, &mut context);
    assert_eq!(c.receive().unwrap().frame, to(2, 1, 100));
    // One buffer is too few for the first frame, and enough for the last.
    b.post(1);
    b.rx.publish_and_kick();
    serve(&mut switch, &mut context);
    assert_eq!(b.receive(), None);
    b.post(10);
    b.rx.publish_and_kick();
    serve(&mut switch, &mut context);
    assert_eq!(b.receive().unwrap().frame, to(1, 0, 4000));
    assert_eq!(b.receive().unwrap().frame, to(1, 2, 100));
    assert_eq!(lost(&drops(&mut switch, 0)), 0);
}

#[test]
fn a_receiver_whose_ring_is_short_but_not_empty_is_waited_for() {
    let (mut switch, mut context, [mut a, mut b, _c]) = world(0, Default::default());
    for number in 0..50 {
        b.post(2);
        b.rx.publish_and_kick();
        // Three buffers' worth.
        offer(&mut a, &[to(1, number, 4000)]);
        serve(&mut switch, &mut context);
        assert_eq!(b.receive(), None);
        b.post(1);
        b.rx.publish_and_kick();
        serve(&mut switch, &mut context);
        assert_eq!(b.receive().unwrap().frame, to(1, number, 4000));
    }
    assert_eq!(lost(&drops(&mut switch, 0)), 0);
}

#[test]
fn a_flooded_frame_does_not_overtake_deferred_frames() {
    let (mut switch, mut context, [mut a, mut b, mut c]) = world(0, Default::default());
    // One buffer is too few for the frame that needs three, and enough for the broadcast.
    b.post(1);
    b.rx.publish_and_kick();
    let flood = frame::numbered(frame::BROADCAST, frame::mac(0), 2, 100);
    offer(&mut a, &[to(1, 0, 4000), to(2, 1, 100), flood.clone()]);
    serve(&mut switch, &mut context);
    assert_eq!(c.receive().unwrap().frame, to(2, 1, 100));
    assert_eq!(c.receive().unwrap().frame, flood);
    assert_eq!(b.receive(), None);
    assert_eq!(drops(&mut switch, 1).receiver_full, 1);
    b.post(10);
    b.rx.publish_and_kick();
    offer(&mut a, &[to(1, 3, 100)]);
    serve(&mut switch, &mut context);
    assert_eq!(b.receive().unwrap().frame, to(1, 0, 4000));
    assert_eq!(b.receive().unwrap().frame, to(1, 3, 100));
    assert_eq!(b.receive(), None);
}

#[test]
fn a_flooded_frame_of_another_vlan_is_no_drop() {
    let vlans = |untagged, tagged: &[(u16, u16)]| Rules {
        vlan: Some(VlanRules {
            untagged,
            tagged: tagged.to_vec(),
        }),
        ..Rules::default()
    };
    let rules = [
        vlans(Some(10), &[(20, 20)]),
        vlans(Some(10), &[]),
        vlans(Some(10), &[(20, 20)]),
    ];
    let (mut switch, mut context, [mut a, _b, mut c]) = world(10, rules);
    let flood = frame::numbered(frame::BROADCAST, frame::mac(0), 2, 100);
    let elsewhere = [&flood[..12], &[0x81, 0, 0, 20], &flood[12..]].concat();
    offer(&mut a, &[to(1, 0, 100), to(2, 0, 100), elsewhere.clone()]);
    serve(&mut switch, &mut context);
    assert_eq!(switch.port_mut(0).unwrap().deferred_frames(), 1);
    assert_eq!(c.receive().unwrap().frame, to(2, 0, 100));
    assert_eq!(c.receive().unwrap().frame, elsewhere);
    assert_eq!(drops(&mut switch, 1).receiver_full, 0);
    // The same broadcast in the receiver's own VLAN is a drop.
    offer(&mut a, &[flood]);
    serve(&mut switch, &mut context);
    assert_eq!(drops(&mut switch, 1).receiver_full, 1);
}
