//! Groups at work, by example.

use front_end::membership::{igmp, igmp_query, igmp_report, mld};

use super::super::membership;
use super::*;

const GROUP: [u8; 4] = [239, 1, 2, 3];
const ROUTER: u16 = 4;

fn mac(group: [u8; 4]) -> Mac {
    address(IpAddr::from(group))
}

fn handle_message(groups: &mut Groups, packet: &[u8], port: u16, now: u32) -> EgressPorts {
    hear_in(groups, packet, port, now, 0)
}

fn hear_in(groups: &mut Groups, packet: &[u8], port: u16, now: u32, vlan: u16) -> EgressPorts {
    let message = membership::read(Family::V4, packet);
    let to: [u8; 4] = packet[16..20].try_into().unwrap();
    groups.handle_message(message, Family::V4, (vlan, mac(to)), port, now)
}

/// The ports below 8 that get frames of a group.
fn who(groups: &Groups, group: [u8; 4], now: u32) -> Vec<u16> {
    listed(groups.egress_ports(Family::V4, 0, mac(group), now))
}

fn listed(egress_ports: EgressPorts) -> Vec<u16> {
    (0..8).filter(|port| egress_ports.has(*port)).collect()
}

const ALL: [u16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

/// VMs at ports 1 to 4 that came at 5, and a question at 10 that is answered by 12.
fn asked() -> Groups {
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
fn without_a_router_everybody_gets_everything() {
    let mut groups = Groups::default();
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 10);
    assert_eq!(listed(report), [0_u16; 0]);
    assert_eq!(who(&groups, GROUP, 10), ALL);
}

#[test]
fn rfc4541_2_1_2_a_group_goes_to_members_and_routers_once_all_had_time_to_answer() {
    let mut groups = asked();
    // RFC 4541, 2.1.1: reports go to routers alone.
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 10);
    assert_eq!(listed(report), [ROUTER]);
    for now in [10, 11] {
        assert_eq!(who(&groups, GROUP, now), ALL);
    }
    assert_eq!(who(&groups, GROUP, 12), [1, ROUTER]);
    assert_eq!(who(&groups, [239, 9, 9, 9], 12), [ROUTER]);
    // What everybody gets, always.
    for local in [[224, 0, 0, 1], [224, 0, 0, 251]] {
        assert_eq!(who(&groups, local, 12), ALL);
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
    let mut groups = asked();
    hear_in(&mut groups, &igmp_query(), ROUTER, 10, 7);
    hear_in(&mut groups, &igmp_report(true, GROUP), 1, 10, 7);
    assert_eq!(who(&groups, GROUP, 12), [ROUTER]);
    let there = groups.egress_ports(Family::V4, 7, mac(GROUP), 12);
    assert_eq!(listed(there), [1, ROUTER]);
}

#[test]
fn memberships_and_routers_that_fall_silent_time_out() {
    let mut groups = asked();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_query(), ROUTER, 135);
    handle_message(&mut groups, &igmp_query(), ROUTER, 260);
    assert_eq!(who(&groups, GROUP, 11 + MEMBERSHIP), [1, ROUTER]);
    assert_eq!(who(&groups, GROUP, 12 + MEMBERSHIP), [ROUTER]);
    assert_eq!(who(&groups, GROUP, 260 + QUERIER), [ROUTER]);
    assert_eq!(who(&groups, GROUP, 261 + QUERIER), ALL);
    // One that comes back has to be answered anew.
    handle_message(&mut groups, &igmp_query(), ROUTER, 600);
    assert_eq!(who(&groups, GROUP, 601), ALL);
    assert_eq!(who(&groups, GROUP, 602), [ROUTER]);
    // A router that another one has taken over from is one no longer.
    handle_message(&mut groups, &igmp_query(), 2, 700);
    assert_eq!(who(&groups, GROUP, 702), [2, ROUTER]);
    handle_message(&mut groups, &igmp_query(), 2, 600 + QUERIER);
    assert_eq!(who(&groups, GROUP, 603 + QUERIER), [2]);
}

#[test]
fn rfc3376_8_8_others_have_time_to_say_that_they_stay() {
    let mut groups = asked();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 11);
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 20);
    handle_message(&mut groups, &igmp_report(false, GROUP), 2, 20);
    assert_eq!(who(&groups, GROUP, 20 + LEAVE), [1, 2, ROUTER]);
    // Said twice, the time is not longer.
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 21);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 20 + LEAVE);
    assert_eq!(who(&groups, GROUP, 21 + LEAVE), [2, ROUTER]);
}

#[test]
fn groups_with_one_mac_address_have_their_own_members() {
    let other = [239, 129, 2, 3];
    assert_eq!(mac(other), mac(GROUP));
    let mut groups = asked();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    handle_message(&mut groups, &igmp_report(true, other), 1, 11);
    handle_message(&mut groups, &igmp_report(false, GROUP), 1, 12);
    assert_eq!(who(&groups, other, 100), [1, ROUTER]);
    handle_message(&mut groups, &igmp_report(false, other), 1, 100);
    assert_eq!(who(&groups, other, 110), [ROUTER]);
}

#[test]
fn a_vm_that_has_just_come_gets_everything_until_it_could_answer() {
    let mut groups = asked();
    groups.note_new_vm(3, 50);
    assert_eq!(who(&groups, GROUP, 51), [3, ROUTER]);
    handle_message(&mut groups, &igmp_query(), ROUTER, 60);
    assert_eq!(who(&groups, GROUP, 61), [3, ROUTER]);
    assert_eq!(who(&groups, GROUP, 62), [ROUTER]);
}

#[test]
fn a_question_that_is_repeated_is_still_answered() {
    let mut groups = asked();
    for now in 11..40 {
        handle_message(&mut groups, &igmp_query(), ROUTER, now);
    }
    assert_eq!(who(&groups, GROUP, 40), [ROUTER]);
}

#[test]
fn rfc4541_2_1_1_what_makes_no_router() {
    let general = [0x11, 10, 0, 0, 0, 0, 0, 0];
    // A switch that asks in a router's place: hosts answer, and it is none.
    let mut groups = Groups::default();
    groups.note_new_vm(1, 5);
    handle_message(&mut groups, &igmp([0; 4], [224, 0, 0, 1], &general), 1, 10);
    assert_eq!(who(&groups, GROUP, 12), [0_u16; 0]);
    // A question about one group, and one that not all hosts hear.
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
        assert_eq!(who(&groups, GROUP, 12), ALL);
    }
    // To all hosts by IP, and to a group's by Ethernet.
    let mut groups = Groups::default();
    let query = igmp_query();
    let message = membership::read(Family::V4, &query);
    groups.handle_message(message, Family::V4, (0, mac(GROUP)), 1, 10);
    assert_eq!(who(&groups, GROUP, 12), ALL);
}

#[test]
fn routers_that_are_known_get_everything_and_reports() {
    let mut groups = asked();
    groups.set_router(6, true);
    assert_eq!(who(&groups, GROUP, 12), [ROUTER, 6]);
    let report = handle_message(&mut groups, &igmp_report(true, GROUP), 1, 12);
    assert_eq!(listed(report), [ROUTER, 6]);
    groups.set_router(6, false);
    assert_eq!(who(&groups, GROUP, 12), [1, ROUTER]);
}

#[test]
fn a_port_that_is_gone_is_in_no_group() {
    let mut groups = asked();
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 11);
    groups.forget(1);
    groups.forget(ROUTER);
    assert_eq!(who(&groups, GROUP, 12), [0_u16; 0]);
    assert_eq!((groups.count, groups.members.len()), (0, 0));
}

fn many(groups: &mut Groups, port: u16, count: usize, now: u32) {
    for number in 0..count {
        let [.., a, b] = number.to_be_bytes();
        groups.join(0, IpAddr::from([239, 5, a, b]), port, now);
    }
}

#[test]
fn a_port_in_too_many_groups_gets_everything_and_others_do_not_notice() {
    let mut groups = asked();
    many(&mut groups, 1, MAX_GROUPS_PER_PORT, 12);
    assert_eq!(who(&groups, GROUP, 12), [ROUTER]);
    many(&mut groups, 1, MAX_GROUPS_PER_PORT + 1, 13);
    assert_eq!(groups.count, MAX_GROUPS_PER_PORT);
    assert_eq!(who(&groups, GROUP, 13), [1, ROUTER]);
    handle_message(&mut groups, &igmp_report(true, GROUP), 2, 13);
    assert_eq!(who(&groups, GROUP, 13), [1, 2, ROUTER]);
    // Whoever comes to its place gets only what it asks for.
    let mut again = asked();
    many(&mut again, 1, MAX_GROUPS_PER_PORT + 1, 12);
    again.forget(1);
    assert_eq!(who(&again, GROUP, 13), [ROUTER]);
    // What is over makes room again.
    handle_message(&mut groups, &igmp_query(), ROUTER, 200);
    let later = 14 + MEMBERSHIP;
    groups.join(0, IpAddr::from([239, 6, 0, 0]), 1, later);
    assert_eq!(groups.count, 1);
    assert_eq!(who(&groups, GROUP, later), [ROUTER]);
}

#[test]
fn what_is_over_is_forgotten() {
    let mut groups = asked();
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
fn a_network_remembers_so_many_memberships() {
    let mut groups = asked();
    let ports = u16::try_from(MAX_MEMBERSHIPS / MAX_GROUPS_PER_PORT).unwrap();
    for port in 0..ports {
        many(&mut groups, 100 + port, MAX_GROUPS_PER_PORT, 12);
    }
    assert_eq!(groups.count, MAX_MEMBERSHIPS);
    handle_message(&mut groups, &igmp_report(true, GROUP), 1, 13);
    assert_eq!(groups.count, MAX_MEMBERSHIPS);
    // It gets what it asked for, and more.
    assert_eq!(who(&groups, GROUP, 13), [1, ROUTER]);
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
    let who = |text: &str| {
        let to = address(text.parse().unwrap());
        listed(groups.egress_ports(Family::V6, 0, to, 12))
    };
    assert_eq!(who("ff05::1:3"), [1, ROUTER]);
    assert_eq!(who("ff05::1:4"), [ROUTER]);
    for local in ["ff02::1", "ff02::1:ff00:1"] {
        assert_eq!(who(local), ALL, "{local}");
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
