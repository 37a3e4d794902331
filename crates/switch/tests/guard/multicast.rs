//! Multicast snooping, as guests see it. The test drives the switch and the clock.

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

    /// Advances the clock.
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

    /// Sends a frame from a port; returns the ports that receive it unchanged.
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

/// Returns a packet in a frame to its group.
fn framed(packet: &[u8]) -> Vec<u8> {
    let [_, b, c, d] = packet[16..20].try_into().unwrap();
    to([1, 0, 0x5e, b & 0x7f, c, d], [8, 0], packet)
}

fn to(mac: [u8; 6], kind: [u8; 2], packet: &[u8]) -> Vec<u8> {
    [&mac[..], &frame::mac(7), &kind, packet].concat()
}

/// Returns a frame with a datagram to a group.
fn datagram(group: [u8; 4]) -> Vec<u8> {
    let fixed = [0x45, 0, 0, 40, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 9];
    framed(&[&fixed[..], &group, &[5; 20]].concat())
}

/// Sends a general query, has the port report a membership, and lets the response time pass.
fn query_and_report(world: &mut World, member: u16) {
    assert_eq!(world.send(ROUTER, &framed(&igmp_query())), [0, 1, 2]);
    let report = world.send(member, &framed(&igmp_report(true, GROUP)));
    assert_eq!(report, [ROUTER], "only routers receive a report");
    world.pass(2);
}

#[test]
fn rfc4541_2_1_groups_go_to_their_members() {
    let mut world = World::new();
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    query_and_report(&mut world, 0);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    assert_eq!(world.send(0, &datagram(GROUP)), [ROUTER]);
    assert_eq!(world.send(1, &datagram([239, 9, 9, 9])), [ROUTER]);
    // Frames that always go to all ports, frames that are not IP, and frames behind a tag are flooded.
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
fn a_new_or_announced_port_gets_all_groups_until_the_next_query_is_answered() {
    let mut world = World::new();
    query_and_report(&mut world, 0);
    world.join();
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER, 4]);
    // The VM migrates to this host now, and has joined its groups on another host.
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
fn memberships_of_detached_ports_are_removed() {
    let mut world = World::new();
    query_and_report(&mut world, 0);
    drop(world.switch.remove(0));
    assert_eq!(world.send(1, &datagram(GROUP)), [ROUTER]);
    assert_eq!(world.send(2, &framed(&igmp_report(true, GROUP))), [ROUTER]);
    assert_eq!(world.send(1, &datagram(GROUP)), [2, ROUTER]);
    // The next VM at this port is in no group, after it had time to answer a query.
    world.nics[0] = world.join_at(0);
    world.pass(1);
    world.send(ROUTER, &framed(&igmp_query()));
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [2, ROUTER]);
    // New rules may change the VLANs of the port.
    world.switch.set_rules(2, Rules::default());
    assert_eq!(world.send(1, &datagram(GROUP)), [ROUTER]);
}

#[test]
fn a_configured_router_port_gets_all_groups() {
    let mut world = World::new();
    query_and_report(&mut world, 0);
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
fn queries_that_hosts_do_not_receive_or_accept_are_ignored() {
    let mut world = World::new();
    let mut bad = igmp_query();
    bad[30] ^= 1;
    world.send(ROUTER, &framed(&bad));
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    // Other private ports would not receive it.
    let rules = Rules {
        role: Role::Private,
        ..Rules::default()
    };
    world.switch.set_rules(ROUTER, rules);
    assert_eq!(world.send(ROUTER, &framed(&igmp_query())), [0_u16; 0]);
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2]);
    // A message larger than any host sends is delivered but not parsed.
    let long = [igmp_query(), vec![0; 2048]].concat();
    assert_eq!(world.send(2, &framed(&long)), [0, 1]);
    world.pass(2);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2]);
}

#[test]
fn a_message_with_a_partial_checksum_is_delivered_but_not_parsed() {
    let mut world = World::new();
    // The checksum is partial, so a receiver would complete it.
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
fn without_snooping_multicast_is_flooded() {
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
    query_and_report(&mut world, 0);
    let mut rules = Rules::default();
    rules.limits.floods.multicast = Some(1);
    world.switch.set_rules(1, rules);
    for _ in 0..10 {
        assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    }
    // The limits apply to reports, because each of them costs CPU time of the worker.
    for _ in 0..10 {
        assert!(world.nics[1].send(&framed(&igmp_report(true, GROUP)), Layout::One));
    }
    while world.switch.serve(&mut world.context, 1).moved > 0 {}
    let drops = world.switch.port_mut(1).unwrap().counters().drops;
    assert_eq!(drops.total(), drops.multicast_limit);
    assert!(drops.multicast_limit > 0);
}

#[test]
fn frames_without_a_receiver_are_counted_but_not_as_drops() {
    let mut world = World::new();
    let before = world.switch.port_mut(1).unwrap().counters();
    // RFC 4541, 2.1.1: reports go to routers, and there are none.
    assert_eq!(
        world.send(1, &framed(&igmp_report(true, GROUP))),
        [0_u16; 0]
    );
    // Without a querier, the group is flooded.
    assert_eq!(world.send(1, &datagram(GROUP)), [0, 2, 3]);
    let after = world.switch.port_mut(1).unwrap().counters();
    let sent = after.tx_frames - before.tx_frames;
    // Each frame was sent in two layouts.
    assert_eq!(
        (
            sent,
            after.multicast_without_members - before.multicast_without_members
        ),
        (4, 2)
    );
    assert_eq!(after.drops.total(), 0);
    // Frames with a receiver do not count.
    query_and_report(&mut world, 0);
    assert_eq!(world.send(1, &datagram(GROUP)), [0, ROUTER]);
    let last = world.switch.port_mut(1).unwrap().counters();
    assert_eq!(
        last.multicast_without_members,
        after.multicast_without_members
    );
}

#[test]
fn flooded_multicast_is_limited() {
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

/// New rules remove the port's learnt addresses, because they may be in other VLANs; the next frame is
/// learnt again.
#[test]
fn the_addresses_of_a_port_with_new_rules_are_learnt_again() {
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
    let end = Instant::now() + front_end::TEST_TIMEOUT;
    // Until the response time has passed, the group is flooded.
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
        assert!(Instant::now() < end, "the group is still flooded");
    }
    assert_eq!(a.receive(), None);
}

/// The querier is a VM, so only the kind of the port shows that a router may be behind the uplink.
#[test]
fn an_uplink_is_a_router_port() {
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
    // Rules without `multicast_router` do not change this.
    both(Some(Rules::default()));
}
