//! Multicast groups, as guests see them. The switch is driven by the test, and so is the time.

use std::time::Instant;

use front_end::membership::{igmp_query, igmp_report};
use front_end::{Layout, Nic, Options, Wire, features, frame};
use switch::context::WorkerContext;
use switch::guard::{Role, Rules};
use switch::switch::Switch;

use crate::common::bare::{attach, messages};
use crate::common::{Outside, Plane};
use crate::nics;

const PORTS: u16 = 4;
const ROUTER: u16 = 3;
const GROUP: [u8; 4] = [239, 1, 2, 3];

struct World {
    switch: Switch,
    context: WorkerContext,
    nics: Vec<Nic>,
}

impl World {
    fn new() -> Self {
        let mut switch = Switch::default();
        switch.snooping = true;
        let mut world = Self {
            switch,
            context: WorkerContext::new(0),
            nics: Vec::new(),
        };
        (0..PORTS).for_each(|_| world.join());
        world.pass(10);
        world
    }

    /// Let so many seconds pass.
    fn pass(&mut self, seconds: u32) {
        self.switch.seconds += seconds;
        self.context.seconds += seconds;
    }

    fn join(&mut self) {
        let number = u16::try_from(self.nics.len()).unwrap();
        let nic = self.join_at(number);
        self.nics.push(nic);
    }

    fn join_at(&mut self, number: u16) -> Nic {
        let (wire, theirs) = Wire::pair();
        attach(&mut self.switch, number, theirs);
        let options = Options {
            features: features::LINUX,
            receive_bytes: 2048,
            ..Options::default()
        };
        let mut nic = Nic::new(wire, options);
        nic.start(|| messages(&mut self.switch, number));
        nic
    }

    /// Who gets a frame that a port sends, as it was sent.
    fn send(&mut self, from: u16, bytes: &[u8]) -> Vec<u16> {
        for layout in [Layout::One, Layout::Pieces(15)] {
            assert!(self.nics[usize::from(from)].send(bytes, layout));
        }
        while self.switch.serve(&mut self.context, from).moved > 0 {}
        self.nics[usize::from(from)].reclaim();
        let mut got = Vec::new();
        for (number, nic) in (0..).zip(&mut self.nics) {
            while let Some(received) = nic.receive() {
                assert_eq!(received.frame, bytes);
                got.push(number);
            }
        }
        assert!(got.chunks(2).all(|both| both[0] == both[1]), "{got:?}");
        got.dedup();
        got
    }
}

/// A packet in a frame to the group it is for.
fn framed(packet: &[u8]) -> Vec<u8> {
    let [_, b, c, d] = packet[16..20].try_into().unwrap();
    to([1, 0, 0x5e, b & 0x7f, c, d], [8, 0], packet)
}

fn to(mac: [u8; 6], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&mac[..], &frame::mac(7), &kind, packet].concat()
}

/// A datagram to a group.
fn datagram(group: [u8; 4]) -> Vec<u8> {
    let fixed = [0x45, 0, 0, 40, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 9];
    framed(&[&fixed[..], &group, &[5; 20]].concat())
}

/// Ask, have the port answer, and let the time for answers pass.
fn asked(world: &mut World, member: u16) {
    assert_eq!(world.send(ROUTER, &framed(&igmp_query())), [0, 1, 2]);
    let report = world.send(member, &framed(&igmp_report(true, GROUP)));
    assert_eq!(report, [ROUTER], "only routers hear a report");
    world.pass(2);
}

#[test]
fn rfc4541_2_1_groups_go_to_their_members() {
    let mut world = World::new();
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    asked(&mut world, 0);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    assert_eq!(world.send(0, &datagram(GROUP)), [ROUTER]);
    assert_eq!(world.send(1, &datagram([239, 9, 9, 9])), [ROUTER]);
    // Not so what is for all, what is no IP, and what hides behind a tag.
    let others = [
        datagram([224, 0, 0, 251]),
        to([0x33, 0x33, 0, 0, 0, 1], [0x86, 0xdd], &[0x60; 60]),
        to([1, 0, 0x5e, 1, 2, 3], [0x88, 0xb5], &[0x45; 60]),
        to([1, 0x80, 0xc2, 0, 0, 0], [0, 38], &[0; 60]),
        to(
            [1, 0, 0x5e, 1, 2, 3],
            [0x81, 0],
            &[0, 5, 8, 0, 0x45, 0, 0, 0],
        ),
        to(frame::BROADCAST, [8, 0], &datagram(GROUP)[14..]),
    ];
    for bytes in others {
        assert_eq!(world.send(1, &bytes), [0, 2, 3], "{bytes:02x?}");
    }
    let leave = world.send(0, &framed(&igmp_report(false, GROUP)));
    assert_eq!(leave, [ROUTER]);
    world.pass(3);
    assert_eq!(world.send(1, &datagram(GROUP)), [ROUTER]);
}

#[test]
fn a_port_that_joins_late_or_is_announced_gets_everything_for_a_while() {
    let mut world = World::new();
    asked(&mut world, 0);
    world.join();
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER, 4]);
    // It moves to this host only now, and has joined its groups elsewhere.
    let mac = switch::mac::Mac::from_octets(frame::mac(2));
    world.switch.announce(&mut world.context, 2, mac);
    for nic in &mut world.nics {
        while nic.receive().is_some() {}
    }
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, ROUTER, 4]);
    world.pass(1);
    world.send(ROUTER, &framed(&igmp_query()));
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
}

#[test]
fn ports_that_go_are_forgotten() {
    let mut world = World::new();
    asked(&mut world, 0);
    drop(world.switch.remove(0));
    assert_eq!(world.send(1, &datagram(GROUP)), [ROUTER]);
    assert_eq!(world.send(2, &framed(&igmp_report(true, GROUP))), [ROUTER]);
    assert_eq!(world.send(1, &datagram(GROUP)), [2, ROUTER]);
    // Whoever comes to its place is in no group once it could have said so.
    world.nics[0] = world.join_at(0);
    world.pass(1);
    world.send(ROUTER, &framed(&igmp_query()));
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [2, ROUTER]);
    // Its VLANs may be others now.
    world.switch.set_rules(2, Rules::default());
    assert_eq!(world.send(1, &datagram(GROUP)), [ROUTER]);
}

#[test]
fn a_port_that_is_told_to_have_a_router_gets_all_groups() {
    let mut world = World::new();
    asked(&mut world, 0);
    let rules = Rules {
        multicast_router: true,
        ..Rules::default()
    };
    world.switch.set_rules(2, rules);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, ROUTER]);
    world.switch.set_rules(2, Rules::default());
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
}

#[test]
fn questions_that_hosts_do_not_hear_or_believe_count_for_nothing() {
    let mut world = World::new();
    let mut bad = igmp_query();
    bad[30] ^= 1;
    world.send(ROUTER, &framed(&bad));
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    // Other private ports would not hear it.
    let rules = Rules {
        role: Role::Private,
        ..Rules::default()
    };
    world.switch.set_rules(ROUTER, rules);
    assert_eq!(world.send(ROUTER, &framed(&igmp_query())), [0_u16; 0]);
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2]);
    // What is larger than any host makes it is delivered and not read.
    let long = [igmp_query(), vec![0; 2048]].concat();
    assert_eq!(world.send(2, &framed(&long)), [0, 1]);
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2]);
}

#[test]
fn an_unfinished_message_is_delivered_and_not_read() {
    let mut world = World::new();
    // Its checksum is partial: who gets it would fill it in.
    let header = [1, 0, 0, 0, 0, 0, 38, 0, 2, 0, 0, 0];
    let query = framed(&igmp_query());
    let router = &mut world.nics[usize::from(ROUTER)];
    assert!(router.send_with(&header, &query, Layout::One));
    while world.switch.serve(&mut world.context, ROUTER).moved > 0 {}
    for nic in &mut world.nics[..3] {
        let got = nic.receive().unwrap();
        assert_eq!((&got.frame, got.header[0]), (&query, 1));
    }
    world.nics[usize::from(ROUTER)].reclaim();
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
}

#[test]
fn without_snooping_groups_go_to_everybody() {
    let mut world = World::new();
    world.switch.snooping = false;
    world.send(ROUTER, &framed(&igmp_query()));
    assert_eq!(world.send(0, &framed(&igmp_report(true, GROUP))), [1, 2, 3]);
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
}

#[test]
fn a_group_that_goes_to_members_alone_is_no_flood() {
    let mut world = World::new();
    asked(&mut world, 0);
    let mut rules = Rules::default();
    rules.limits.floods.multicast = Some(1);
    world.switch.set_rules(1, rules);
    for _ in 0..10 {
        assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    }
    // Reports are metered: each of them takes the worker's time.
    for _ in 0..10 {
        assert!(world.nics[1].send(&framed(&igmp_report(true, GROUP)), Layout::One));
    }
    while world.switch.serve(&mut world.context, 1).moved > 0 {}
    let drops = world.switch.port_mut(1).unwrap().counters().drops;
    assert_eq!(drops.total(), drops.multicast_limit);
    assert!(drops.multicast_limit > 0);
}

#[test]
fn what_nobody_is_to_hear_is_counted_and_no_loss() {
    let mut world = World::new();
    let before = world.switch.port_mut(1).unwrap().counters();
    // RFC 4541, 2.1.1: a report is for routers, and there are none.
    assert_eq!(
        world.send(1, &framed(&igmp_report(true, GROUP))),
        [0_u16; 0]
    );
    // Without them a group is everybody's.
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    let after = world.switch.port_mut(1).unwrap().counters();
    let sent = after.tx_frames - before.tx_frames;
    // Each was sent in two layouts.
    assert_eq!((sent, after.unheard - before.unheard), (4, 2));
    assert_eq!(after.drops.total(), 0);
    // What somebody heard is none of it.
    asked(&mut world, 0);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    let last = world.switch.port_mut(1).unwrap().counters();
    assert_eq!(last.unheard, after.unheard);
}

#[test]
fn a_group_that_goes_to_everybody_is_a_flood() {
    let mut world = World::new();
    let mut rules = Rules::default();
    rules.limits.floods.multicast = Some(1);
    world.switch.set_rules(1, rules);
    for _ in 0..10 {
        assert!(world.nics[1].send(&datagram(GROUP), Layout::One));
    }
    while world.switch.serve(&mut world.context, 1).moved > 0 {}
    let drops = world.switch.port_mut(1).unwrap().counters().drops;
    assert_eq!(drops.total(), drops.multicast_limit);
    assert!(drops.multicast_limit > 0);
}

/// New rules forget where addresses live, for they may be of other VLANs; what is sent then tells it.
#[test]
fn a_port_with_new_rules_is_heard_anew() {
    let mut world = World::new();
    let lives_at = |world: &World| {
        let mac = switch::mac::Mac::from_octets(frame::mac(7));
        world.switch.table.lookup(mac, world.context.seconds)
    };
    world.send(1, &datagram(GROUP));
    assert_eq!(lives_at(&world), Some(1));
    world.switch.set_rules(1, Rules::default());
    assert_eq!(lives_at(&world), None);
    world.send(1, &datagram(GROUP));
    assert_eq!(lives_at(&world), Some(1));
}

#[test]
fn an_uplink_gets_all_groups_and_reports() {
    let mut plane = Plane::new();
    plane.order(&switch::control::Order::SetSnooping { on: true }, None);
    let outside = Outside::attach(&plane);
    let [mut a, mut b, mut c] = nics(&mut plane, [(); 3].map(|()| Rules::default()));
    let report = framed(&igmp_report(true, GROUP));
    let bytes = datagram(GROUP);
    let end = Instant::now() + front_end::GUARD;
    // Until the time for answers has passed, everybody gets the group's frames.
    loop {
        outside.send(&[0; 12], &framed(&igmp_query()));
        for nic in [&mut a, &mut b, &mut c] {
            assert_eq!(nic.wait_to_receive().frame, framed(&igmp_query()));
        }
        b.wait_to_send(&report, Layout::One);
        assert_eq!(outside.receive().1, report);
        a.wait_to_send(&bytes, Layout::One);
        assert_eq!(outside.receive().1, bytes);
        assert_eq!(b.wait_to_receive().frame, bytes);
        a.wait_until_sent();
        match c.receive() {
            None => break,
            Some(received) => assert_eq!(received.frame, bytes),
        }
        assert!(Instant::now() < end, "everybody still gets them");
    }
    assert_eq!(a.receive(), None);
}

/// It is a VM that asks: nothing else says that a router may be behind the uplink.
#[test]
fn an_uplink_counts_as_a_router() {
    let mut plane = Plane::new();
    plane.order(&switch::control::Order::SetSnooping { on: true }, None);
    let outside = Outside::attach(&plane);
    let [mut asking, mut other] = nics(&mut plane, [(); 2].map(|()| Rules::default()));
    let report = framed(&igmp_report(true, GROUP));
    let mut both = |rules: Option<Rules>| {
        if let Some(rules) = rules {
            plane.rules(9, rules);
            plane.wait_for_orders();
        }
        let query = framed(&igmp_query());
        asking.wait_to_send(&query, Layout::One);
        assert_eq!(outside.receive().1, query);
        assert_eq!(other.wait_to_receive().frame, query);
        other.wait_to_send(&report, Layout::One);
        assert_eq!(asking.wait_to_receive().frame, report);
        assert_eq!(outside.receive().1, report);
    };
    both(None);
    // Rules that do not mention it change nothing.
    both(Some(Rules::default()));
}
