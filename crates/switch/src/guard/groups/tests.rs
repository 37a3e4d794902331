//! Tests of snooping.

use front_end::membership::{igmp, igmp_query, igmp_report, mld};

use super::super::membership;
use super::*;

const GROUP: [u8; 4] = [239, 1, 2, 3];
const ROUTER: u16 = 4;

fn mac(group: [u8; 4]) -> Mac {
    address(IpAddr::from(group))
}

fn handle_message(groups: &mut Groups, packet: &[u8], port: u16, now: u32) -> EgressPorts {
    handle_in_vlan(groups, packet, port, now, 0)
}

fn handle_in_vlan(
    groups: &mut Groups,
    packet: &[u8],
    port: u16,
    now: u32,
    vlan: u16,
) -> EgressPorts {
    let message = membership::read(Family::V4, packet);
    let to: [u8; 4] = packet[16..20].try_into().unwrap();
    groups.handle_message(message, Family::V4, (vlan, mac(to)), port, now)
}

/// Returns the ports below 8 that get frames of a group.
fn ports_of(groups: &Groups, group: [u8; 4], now: u32) -> Vec<u16> {
    listed(groups.egress_ports(Family::V4, 0, mac(group), now))
}

fn listed(egress_ports: EgressPorts) -> Vec<u16> {
    (0..8).filter(|port| egress_ports.contains(*port)).collect()
}

const ALL: [u16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Returns groups with VMs at ports 1 to 4 since second 5, and a general query at 10 whose response time
/// ends at 12.
fn queried() -> Groups {
    let mut groups = Groups::default();
    for port in 1..=4 {
        groups.note_new_vm(port, 5);
    }
    assert_eq!(
        handle_message(&mut groups, &igmp_query(), ROUTER, 10),
        EgressPorts::All
    );
    groups
}

#[test]
fn without_a_querier_multicast_is_flooded() {
    let mut groups = Groups::default();
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 10);
    assert_eq!(listed(report), [0_u16; 0]);
    assert_eq!(ports_of(&groups, GROUP, 10), ALL);
}

#[test]
fn rfc4541_2_1_2_a_group_goes_to_members_and_routers_once_all_had_time_to_answer() {
    let mut groups = queried();
    // RFC 4541, 2.1.1: reports go to routers only.
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 10);
    assert_eq!(listed(report), [ROUTER]);
    for now in [10, 11] {
        assert_eq!(ports_of(&groups, GROUP, now), ALL);
    }
    assert_eq!(ports_of(&groups, GROUP, 12), [1, ROUTER]);
    assert_eq!(ports_of(&groups, [239, 9, 9, 9], 12), [ROUTER]);
    // Frames that always go to all ports.
    for local in [[224, 0, 0, 1], [224, 0, 0, 251]] {
        assert_eq!(ports_of(&groups, local, 12), ALL);
    }
    // Other VLANs and families have their own routers.
    let others = [
        groups.egress_ports(Family::V4, 7, mac(GROUP), 12),
        groups.egress_ports(Family::V6, 0, mac(GROUP), 12),
    ];
    assert_eq!(others, [EgressPorts::All; 2]);
}

#[test]
fn vlans_have_their_own_members() {
    let mut groups = queried();
    handle_in_vlan(&mut groups, &igmp_query(), ROUTER, 10, 7);
    handle_in_vlan(&mut groups, &igmp_report(true, GROUP), 1, 10, 7);
    assert_eq!(ports_of(&groups, GROUP, 12), [ROUTER]);
    let there = groups.egress_ports(Family::V4, 7, mac(GROUP), 12);
    assert_eq!(listed(there), [1, ROUTER]);
}

#[test]
fn memberships_and_queriers_without_messages_expire() {
    let mut groups = queried();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_query(), ROUTER, 135);
    handle_message(&mut groups, &igmp_query(), ROUTER, 260);
    assert_eq!(ports_of(&groups, GROUP, 11 + MEMBERSHIP), [1, ROUTER]);
    assert_eq!(ports_of(&groups, GROUP, 12 + MEMBERSHIP), [ROUTER]);
    assert_eq!(ports_of(&groups, GROUP, 260 + QUERIER), [ROUTER]);
    assert_eq!(ports_of(&groups, GROUP, 261 + QUERIER), ALL);
    // After a querier returns, its query must be answered again.
    handle_message(&mut groups, &igmp_query(), ROUTER, 600);
    assert_eq!(ports_of(&groups, GROUP, 601), ALL);
    assert_eq!(ports_of(&groups, GROUP, 602), [ROUTER]);
    // A router that another router has replaced expires.
    handle_message(&mut groups, &igmp_query(), 2, 700);
    assert_eq!(ports_of(&groups, GROUP, 702), [2, ROUTER]);
    handle_message(&mut groups, &igmp_query(), 2, 600 + QUERIER);
    assert_eq!(ports_of(&groups, GROUP, 603 + QUERIER), [2]);
}

#[test]
fn rfc3376_8_8_other_hosts_have_time_to_report_their_membership() {
    let mut groups = queried();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 11);
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 20);
    handle_message(&mut groups, &igmp_report(false, GROUP), 2, 20);
    assert_eq!(ports_of(&groups, GROUP, 20 + LEAVE), [1, 2, ROUTER]);
    // A second leave does not extend the time.
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 21);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 20 + LEAVE);
    assert_eq!(ports_of(&groups, GROUP, 21 + LEAVE), [2, ROUTER]);
}

#[test]
fn groups_with_one_mac_address_have_their_own_members() {
    let other = [239, 129, 2, 3];
    assert_eq!(mac(other), mac(GROUP));
    let mut groups = queried();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_report(true, other), 1, 11);
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 12);
    assert_eq!(ports_of(&groups, other, 100), [1, ROUTER]);
    handle_message(&mut groups, &igmp_report(false, other), 1, 100);
    assert_eq!(ports_of(&groups, other, 110), [ROUTER]);
}

#[test]
fn a_new_vm_gets_all_groups_until_it_had_time_to_answer() {
    let mut groups = queried();
    groups.note_new_vm(3, 50);
    assert_eq!(ports_of(&groups, GROUP, 51), [3, ROUTER]);
    handle_message(&mut groups, &igmp_query(), ROUTER, 60);
    assert_eq!(ports_of(&groups, GROUP, 61), [3, ROUTER]);
    assert_eq!(ports_of(&groups, GROUP, 62), [ROUTER]);
}

#[test]
fn a_repeated_query_does_not_restart_the_response_time() {
    let mut groups = queried();
    for now in 11..40 {
        handle_message(&mut groups, &igmp_query(), ROUTER, now);
    }
    assert_eq!(ports_of(&groups, GROUP, 40), [ROUTER]);
}

#[test]
fn rfc4541_2_1_1_queries_that_do_not_make_a_port_a_router_port() {
    let general = [0x11, 10, 0, 0, 0, 0, 0, 0];
    // A switch queries in place of a router: hosts answer, but its port is no router port.
    let mut groups = Groups::default();
    groups.note_new_vm(1, 5);
    handle_message(&mut groups, &igmp([0; 4], [224, 0, 0, 1], &general), 1, 10);
    assert_eq!(ports_of(&groups, GROUP, 12), [0_u16; 0]);
    // A query about one group, and a query that not all hosts receive.
    let specific = [0x11, 10, 0, 0, 239, 1, 2, 3];
    for packet in [
        igmp([10, 0, 0, 9], GROUP, &specific),
        igmp([10, 0, 0, 9], GROUP, &general),
        igmp([10, 0, 0, 9], [224, 0, 0, 1], &specific),
    ] {
        let mut groups = Groups::default();
        assert_eq!(
            handle_message(&mut groups, &packet, 1, 10),
            EgressPorts::All
        );
        assert_eq!(ports_of(&groups, GROUP, 12), ALL);
    }
    // To all hosts by its IP address, and to one group by its MAC address.
    let mut groups = Groups::default();
    let query = igmp_query();
    let message = membership::read(Family::V4, &query);
    groups.handle_message(message, Family::V4, (0, mac(GROUP)), 1, 10);
    assert_eq!(ports_of(&groups, GROUP, 12), ALL);
}

#[test]
fn configured_router_ports_get_all_groups_and_reports() {
    let mut groups = queried();
    groups.set_router(6, true);
    assert_eq!(ports_of(&groups, GROUP, 12), [ROUTER, 6]);
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 12);
    assert_eq!(listed(report), [ROUTER, 6]);
    groups.set_router(6, false);
    assert_eq!(ports_of(&groups, GROUP, 12), [1, ROUTER]);
}

#[test]
fn a_port_that_is_gone_has_no_memberships() {
    let mut groups = queried();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    groups.remove(1);
    groups.remove(ROUTER);
    assert_eq!(ports_of(&groups, GROUP, 12), [0_u16; 0]);
    assert_eq!((groups.count, groups.members.len()), (0, 0));
}

fn many(groups: &mut Groups, port: u16, count: usize, now: u32) {
    for number in 0..count {
        let [.., a, b] = number.to_be_bytes();
        groups.join(0, IpAddr::from([239, 5, a, b]), port, now);
    }
}

#[test]
fn a_port_in_too_many_groups_gets_all_groups_and_other_ports_are_unaffected() {
    let mut groups = queried();
    many(&mut groups, 1, MAX_GROUPS_PER_PORT, 12);
    assert_eq!(ports_of(&groups, GROUP, 12), [ROUTER]);
    many(&mut groups, 1, MAX_GROUPS_PER_PORT + 1, 13);
    assert_eq!(groups.count, MAX_GROUPS_PER_PORT);
    assert_eq!(ports_of(&groups, GROUP, 13), [1, ROUTER]);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 13);
    assert_eq!(ports_of(&groups, GROUP, 13), [1, 2, ROUTER]);
    // The next port with its number gets only the groups that it joins.
    let mut again = queried();
    many(&mut again, 1, MAX_GROUPS_PER_PORT + 1, 12);
    again.remove(1);
    assert_eq!(ports_of(&again, GROUP, 13), [ROUTER]);
    // Expired memberships make room.
    handle_message(&mut groups, &igmp_query(), ROUTER, 200);
    let later = 14 + MEMBERSHIP;
    groups.join(0, IpAddr::from([239, 6, 0, 0]), 1, later);
    assert_eq!(groups.count, 1);
    assert_eq!(ports_of(&groups, GROUP, later), [ROUTER]);
}

#[test]
fn expired_memberships_and_queriers_are_removed() {
    let mut groups = queried();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    groups.sweep(10 + QUERIER);
    assert_eq!((groups.queriers.len(), groups.count), (1, 1));
    groups.sweep(11 + QUERIER);
    assert_eq!((groups.queriers.len(), groups.count), (0, 1));
    groups.sweep(11 + MEMBERSHIP);
    assert_eq!((groups.members.len(), groups.ports[1].memberships), (1, 1));
    groups.sweep(12 + MEMBERSHIP);
    assert_eq!((groups.members.len(), groups.ports[1].memberships), (0, 0));
    assert_eq!(groups.count, 0);
}

#[test]
fn the_memberships_of_a_network_are_limited() {
    let mut groups = queried();
    let ports = u16::try_from(MAX_MEMBERSHIPS / MAX_GROUPS_PER_PORT).unwrap();
    for port in 0..ports {
        many(&mut groups, 100 + port, MAX_GROUPS_PER_PORT, 12);
    }
    assert_eq!(groups.count, MAX_MEMBERSHIPS);
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 13);
    assert_eq!(groups.count, MAX_MEMBERSHIPS);
    // The port gets the group that it joined, and all others.
    assert_eq!(ports_of(&groups, GROUP, 13), [1, ROUTER]);
}

#[test]
fn rfc4541_3_the_same_for_ipv6() {
    let query = [&[130, 0, 0, 0, 0, 100, 0, 0][..], &[0; 16]].concat();
    let query = mld("fe80::1", "ff02::1", &query);
    let group: IpAddr = "ff05::1:3".parse().unwrap();
    let IpAddr::V6(six) = group else { panic!() };
    let report = [&[131, 0, 0, 0, 0, 0, 0, 0][..], &six.octets()].concat();
    let report = mld("fe80::2", "ff05::1:3", &report);
    let mut groups = Groups::default();
    for (packet, to, port) in [
        (&query, all_hosts(Family::V6), ROUTER),
        (&report, address(group), 1),
    ] {
        groups.note_new_vm(port, 5);
        let message = membership::read(Family::V6, packet);
        groups.handle_message(message, Family::V6, (0, to), port, 10);
    }
    let members_of = |text: &str| {
        let to = address(text.parse().unwrap());
        listed(groups.egress_ports(Family::V6, 0, to, 12))
    };
    assert_eq!(members_of("ff05::1:3"), [1, ROUTER]);
    assert_eq!(members_of("ff05::1:4"), [ROUTER]);
    for local in ["ff02::1", "ff02::1:ff00:1"] {
        assert_eq!(members_of(local), ALL, "{local}");
    }
}

#[test]
fn a_group_address_is_one_of_the_family_its_frames_are_of() {
    let four = mac(GROUP);
    let six = address("ff05::1:3".parse().unwrap());
    assert_eq!(family(four, 0x0800), Some(Family::V4));
    assert_eq!(family(six, 0x86dd), Some(Family::V6));
    for (to, kind) in [(four, 0x86dd), (six, 0x0800), (four, 0x88b5)] {
        assert_eq!(family(to, kind), None);
    }
}

#[test]
fn rfc1112_6_4_and_rfc2464_7_groups_have_mac_addresses() {
    for (group, expected) in [
        ("224.128.64.32", "01:00:5e:00:40:20"),
        ("239.255.255.255", "01:00:5e:7f:ff:ff"),
        ("ff02::1:ff12:3456", "33:33:ff:12:34:56"),
    ] {
        let group: IpAddr = group.parse().unwrap();
        assert_eq!(address(group).to_string(), expected);
    }
}
