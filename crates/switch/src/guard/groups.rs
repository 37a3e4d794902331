//! Who is in which multicast group: learnt from what hosts and routers say, as RFC 4541 has it.
//!
//! A network begins as if it knew nothing, and every group's frames go everywhere. Once a router
//! has asked all hosts for their groups, and they have had the time to answer, frames of a group go
//! to its members and to routers alone: in that VLAN, for that family, and as long as the router
//! goes on asking. So in a network where nobody asks, nothing changes.
//!
//! A port gets all groups' frames, too, until it has had its chance to answer: a VM that has just
//! come may have joined its groups elsewhere. And so does a port that is in more groups than are
//! remembered.

use std::collections::HashMap;
use std::net::IpAddr;

use super::membership::{Change, Family, Message, Query};
use crate::limits::{LEAVE, MAX_GROUPS_PER_PORT, MAX_MEMBERSHIPS, MAX_PORTS, MEMBERSHIP, QUERIER};
use crate::mac::Mac;

/// Ports of a network: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports([u64; MAX_PORTS / 64]);

impl Ports {
    /// Add a port.
    pub fn insert(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port / 64)) {
            *word |= 1 << (port % 64);
        }
    }

    /// Whether a port is among them.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        let word = self.0.get(usize::from(port / 64));
        word.is_some_and(|word| word >> (port % 64) & 1 == 1)
    }
}

/// Whose frames go where. Times are in seconds.
#[derive(Debug, Default)]
pub struct Groups {
    members: HashMap<(u16, Mac), Vec<Member>>,
    /// All of them.
    count: usize,
    queriers: HashMap<(u16, Family), Querier>,
    ports: Vec<Port>,
    swept: u32,
}

/// A port in a group. Groups with the same MAC address share their frames, not their members.
#[derive(Debug)]
struct Member {
    group: IpAddr,
    port: u16,
    until: u32,
}

#[derive(Clone, Debug, Default)]
struct Port {
    /// When the VM behind it came.
    since: u32,
    /// Until then it gets all groups' frames.
    all_until: u32,
    memberships: usize,
    /// A router is behind it, whether it asks or not.
    router: bool,
}

/// The routers that ask the hosts of a VLAN.
#[derive(Debug, Default)]
struct Querier {
    /// Until then somebody counts as asking.
    until: u32,
    /// The last question that all hosts have had the time to answer: when it was asked.
    answered: Option<u32>,
    /// The question being answered: when it was asked, and until when.
    open: Option<(u32, u32)>,
    routers: Vec<(u16, u32)>,
}

impl Querier {
    /// When the last question was asked that is answered now.
    fn answered(&self, now: u32) -> Option<u32> {
        let last = match self.open {
            Some((asked, end)) if now > end => Some(asked),
            _ => self.answered,
        };
        last.filter(|_| now <= self.until)
    }

    fn hear(&mut self, query: Query, port: u16, now: u32) {
        // An earlier router that fell silent counts no more.
        if now > self.until {
            (self.answered, self.open) = (None, None);
        }
        self.until = now.saturating_add(QUERIER);
        if self.open.is_none_or(|(_, end)| now > end) {
            self.answered = self.answered(now);
            self.open = Some((now, now.saturating_add(query.response)));
        }
        if query.from_router {
            self.routers
                .retain(|(at, until)| *at != port && now <= *until);
            self.routers.push((port, self.until));
        }
    }
}

/// Who gets a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Everybody.
    All,
    /// These.
    Some(Ports),
}

impl Audience {
    /// Whether a port is to get it.
    #[inline]
    #[must_use]
    pub fn has(&self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Some(ports) => ports.contains(port),
        }
    }
}

impl Groups {
    /// A VM has come to a port, or a router's uplink.
    pub fn greet(&mut self, port: u16, now: u32) {
        if let Some(port) = self.port(port) {
            port.since = now;
        }
    }

    /// Say whether a router is behind a port.
    pub fn set_router(&mut self, port: u16, router: bool) {
        if let Some(port) = self.port(port) {
            port.router = router;
        }
    }

    /// Forget what was said at a port.
    pub fn forget(&mut self, number: u16) {
        if let Some(port) = self.ports.get_mut(usize::from(number)) {
            (port.memberships, port.all_until) = (0, 0);
        }
        for querier in self.queriers.values_mut() {
            querier.routers.retain(|(at, _)| *at != number);
        }
        self.keep(|member| member.port != number);
    }

    fn port(&mut self, number: u16) -> Option<&mut Port> {
        let index = usize::from(number);
        if index < MAX_PORTS && index >= self.ports.len() {
            self.ports.resize(index + 1, Port::default());
        }
        self.ports.get_mut(index)
    }

    /// A port in a VLAN has said something to this address; who is to get it.
    pub fn hear(
        &mut self,
        message: Message<'_>,
        family: Family,
        (vlan, destination): (u16, Mac),
        port: u16,
        now: u32,
    ) -> Audience {
        match message {
            Message::Query(query) => {
                if query.general && destination == all_hosts(family) {
                    let querier = self.queriers.entry((vlan, family)).or_default();
                    querier.hear(query, port, now);
                }
                Audience::All
            }
            Message::Report(report) => {
                for change in report.changes() {
                    match change {
                        Change::Join(group) => self.join(vlan, group, port, now),
                        Change::Leave(group) => self.leave(vlan, group, port, now),
                    }
                }
                // RFC 4541, 2.1.1: hosts that hear it would keep theirs to themselves.
                Audience::Some(self.routers(vlan, family, now))
            }
            Message::Other => self.audience(family, vlan, destination, now),
        }
    }

    /// Who gets a frame to this address.
    #[must_use]
    pub fn audience(&self, family: Family, vlan: u16, destination: Mac, now: u32) -> Audience {
        let querier = self.queriers.get(&(vlan, family));
        let answered = querier.and_then(|querier| querier.answered(now));
        let (Some(answered), false) = (answered, everybodys(destination)) else {
            return Audience::All;
        };
        let mut ports = self.routers(vlan, family, now);
        for (number, port) in (0..).zip(&self.ports) {
            if port.since >= answered || now <= port.all_until {
                ports.insert(number);
            }
        }
        let members = self.members.get(&(vlan, destination));
        for member in members.into_iter().flatten() {
            if now <= member.until {
                ports.insert(member.port);
            }
        }
        Audience::Some(ports)
    }

    fn routers(&self, vlan: u16, family: Family, now: u32) -> Ports {
        let mut ports = Ports::default();
        for (number, port) in (0..).zip(&self.ports) {
            if port.router {
                ports.insert(number);
            }
        }
        let querier = self.queriers.get(&(vlan, family));
        for (port, until) in querier.into_iter().flat_map(|querier| &querier.routers) {
            if now <= *until {
                ports.insert(*port);
            }
        }
        ports
    }

    fn join(&mut self, vlan: u16, group: IpAddr, port: u16, now: u32) {
        let until = now.saturating_add(MEMBERSHIP);
        let place = (vlan, address(group));
        let known = self.members.get_mut(&place).and_then(|members| {
            let mut members = members.iter_mut();
            members.find(|member| member.group == group && member.port == port)
        });
        if let Some(member) = known {
            member.until = until;
            return;
        }
        let full = |groups: &Self| {
            let port = groups.ports.get(usize::from(port));
            groups.count >= MAX_MEMBERSHIPS
                || port.is_some_and(|port| port.memberships >= MAX_GROUPS_PER_PORT)
        };
        // At most once a second, whatever hosts say.
        if full(self) && self.swept != now {
            self.sweep(now);
        }
        let no_room = full(self);
        let Some(owner) = self.port(port) else { return };
        if no_room {
            owner.all_until = until;
            return;
        }
        owner.memberships += 1;
        self.count += 1;
        let member = Member { group, port, until };
        self.members.entry(place).or_default().push(member);
    }

    /// Another host behind the port may still be in the group: it has the time to say so, when the
    /// router asks (RFC 3376, 8.8).
    fn leave(&mut self, vlan: u16, group: IpAddr, port: u16, now: u32) {
        let members = self.members.get_mut(&(vlan, address(group)));
        for member in members.into_iter().flatten() {
            if member.group == group && member.port == port {
                member.until = member.until.min(now.saturating_add(LEAVE));
            }
        }
    }

    /// Forget what is over.
    pub fn sweep(&mut self, now: u32) {
        self.swept = now;
        self.keep(|member| now <= member.until);
        self.queriers.retain(|_, querier| now <= querier.until);
    }

    fn keep(&mut self, condition: impl Fn(&Member) -> bool) {
        let Self { members, ports, .. } = self;
        ports.iter_mut().for_each(|port| port.memberships = 0);
        let mut count = 0;
        members.retain(|_, members| {
            members.retain(&condition);
            count += members.len();
            for member in &*members {
                if let Some(port) = ports.get_mut(usize::from(member.port)) {
                    port.memberships += 1;
                }
            }
            !members.is_empty()
        });
        self.count = count;
    }
}

/// The MAC address of a group (RFC 1112, 6.4, and RFC 2464, 7).
fn address(group: IpAddr) -> Mac {
    Mac::from_octets(match group {
        IpAddr::V4(group) => {
            let [_, b, c, d] = group.octets();
            [1, 0, 0x5e, b & 0x7f, c, d]
        }
        IpAddr::V6(group) => {
            let [.., a, b, c, d] = group.octets();
            [0x33, 0x33, a, b, c, d]
        }
    })
}

/// The address of frames to all hosts of a family.
fn all_hosts(family: Family) -> Mac {
    Mac::from_octets(match family {
        Family::V4 => [1, 0, 0x5e, 0, 0, 1],
        Family::V6 => [0x33, 0x33, 0, 0, 0, 1],
    })
}

/// Whether frames to this address go to everybody whatever is known: those of 224.0.0.0/24, of
/// ff02::1 (RFC 4541, 2.1.2 and 3), and of neighbour discovery, which must work even for a host
/// whose report was lost.
fn everybodys(destination: Mac) -> bool {
    matches!(
        destination.octets(),
        [1, 0, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, 1] | [0x33, 0x33, 0xff, ..]
    )
}

/// The family whose group an address may be, if its frames are of this type.
#[must_use]
pub fn family(destination: Mac, kind: u16) -> Option<Family> {
    match (destination.octets(), kind) {
        ([1, 0, 0x5e, ..], 0x0800) => Some(Family::V4),
        ([0x33, 0x33, ..], 0x86dd) => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use front_end::membership::{igmp, igmp_query, igmp_report, mld};

    use super::super::membership;
    use super::*;

    const GROUP: [u8; 4] = [239, 1, 2, 3];
    const ROUTER: u16 = 4;

    fn mac(group: [u8; 4]) -> Mac {
        address(IpAddr::from(group))
    }

    fn hear(groups: &mut Groups, packet: &[u8], port: u16, now: u32) -> Audience {
        hear_in(groups, packet, port, now, 0)
    }

    fn hear_in(groups: &mut Groups, packet: &[u8], port: u16, now: u32, vlan: u16) -> Audience {
        let message = membership::read(Family::V4, packet);
        let to: [u8; 4] = packet[16..20].try_into().unwrap();
        groups.hear(message, Family::V4, (vlan, mac(to)), port, now)
    }

    /// The ports below 8 that get frames of a group.
    fn who(groups: &Groups, group: [u8; 4], now: u32) -> Vec<u16> {
        listed(groups.audience(Family::V4, 0, mac(group), now))
    }

    fn listed(audience: Audience) -> Vec<u16> {
        (0..8).filter(|port| audience.has(*port)).collect()
    }

    const ALL: [u16; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    /// VMs at ports 1 to 4 that came at 5, and a question at 10 that is answered by 12.
    fn asked() -> Groups {
        let mut groups = Groups::default();
        for port in 1..=4 {
            groups.greet(port, 5);
        }
        assert_eq!(hear(&mut groups, &igmp_query(), ROUTER, 10), Audience::All);
        groups
    }

    #[test]
    fn without_a_router_everybody_gets_everything() {
        let mut groups = Groups::default();
        let report = hear(&mut groups, &igmp_report(true, GROUP), 1, 10);
        assert_eq!(listed(report), [0_u16; 0]);
        assert_eq!(who(&groups, GROUP, 10), ALL);
    }

    #[test]
    fn rfc4541_2_1_2_a_group_goes_to_members_and_routers_once_all_had_time_to_answer() {
        let mut groups = asked();
        // RFC 4541, 2.1.1: reports go to routers alone.
        let report = hear(&mut groups, &igmp_report(true, GROUP), 1, 10);
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
            groups.audience(Family::V4, 7, mac(GROUP), 12),
            groups.audience(Family::V6, 0, mac(GROUP), 12),
        ];
        assert_eq!(others, [Audience::All; 2]);
    }

    #[test]
    fn vlans_have_their_own_members() {
        let mut groups = asked();
        hear_in(&mut groups, &igmp_query(), ROUTER, 10, 7);
        hear_in(&mut groups, &igmp_report(true, GROUP), 1, 10, 7);
        assert_eq!(who(&groups, GROUP, 12), [ROUTER]);
        let there = groups.audience(Family::V4, 7, mac(GROUP), 12);
        assert_eq!(listed(there), [1, ROUTER]);
    }

    #[test]
    fn memberships_and_routers_that_fall_silent_time_out() {
        let mut groups = asked();
        hear(&mut groups, &igmp_report(true, GROUP), 1, 11);
        hear(&mut groups, &igmp_query(), ROUTER, 135);
        hear(&mut groups, &igmp_query(), ROUTER, 260);
        assert_eq!(who(&groups, GROUP, 11 + MEMBERSHIP), [1, ROUTER]);
        assert_eq!(who(&groups, GROUP, 12 + MEMBERSHIP), [ROUTER]);
        assert_eq!(who(&groups, GROUP, 260 + QUERIER), [ROUTER]);
        assert_eq!(who(&groups, GROUP, 261 + QUERIER), ALL);
        // One that comes back has to be answered anew.
        hear(&mut groups, &igmp_query(), ROUTER, 600);
        assert_eq!(who(&groups, GROUP, 601), ALL);
        assert_eq!(who(&groups, GROUP, 602), [ROUTER]);
        // A router that another one has taken over from is one no longer.
        hear(&mut groups, &igmp_query(), 2, 700);
        assert_eq!(who(&groups, GROUP, 702), [2, ROUTER]);
        hear(&mut groups, &igmp_query(), 2, 600 + QUERIER);
        assert_eq!(who(&groups, GROUP, 603 + QUERIER), [2]);
    }

    #[test]
    fn rfc3376_8_8_others_have_time_to_say_that_they_stay() {
        let mut groups = asked();
        hear(&mut groups, &igmp_report(true, GROUP), 1, 11);
        hear(&mut groups, &igmp_report(true, GROUP), 2, 11);
        hear(&mut groups, &igmp_report(false, GROUP), 1, 20);
        hear(&mut groups, &igmp_report(false, GROUP), 2, 20);
        assert_eq!(who(&groups, GROUP, 20 + LEAVE), [1, 2, ROUTER]);
        hear(&mut groups, &igmp_report(true, GROUP), 2, 20 + LEAVE);
        assert_eq!(who(&groups, GROUP, 21 + LEAVE), [2, ROUTER]);
    }

    #[test]
    fn groups_with_one_mac_address_have_their_own_members() {
        let other = [239, 129, 2, 3];
        assert_eq!(mac(other), mac(GROUP));
        let mut groups = asked();
        hear(&mut groups, &igmp_report(true, GROUP), 1, 11);
        hear(&mut groups, &igmp_report(true, other), 1, 11);
        hear(&mut groups, &igmp_report(false, GROUP), 1, 12);
        assert_eq!(who(&groups, other, 100), [1, ROUTER]);
        hear(&mut groups, &igmp_report(false, other), 1, 100);
        assert_eq!(who(&groups, other, 110), [ROUTER]);
    }

    #[test]
    fn a_vm_that_has_just_come_gets_everything_until_it_could_answer() {
        let mut groups = asked();
        groups.greet(3, 50);
        assert_eq!(who(&groups, GROUP, 51), [3, ROUTER]);
        hear(&mut groups, &igmp_query(), ROUTER, 60);
        assert_eq!(who(&groups, GROUP, 61), [3, ROUTER]);
        assert_eq!(who(&groups, GROUP, 62), [ROUTER]);
    }

    #[test]
    fn a_question_that_is_repeated_is_still_answered() {
        let mut groups = asked();
        for now in 11..40 {
            hear(&mut groups, &igmp_query(), ROUTER, now);
        }
        assert_eq!(who(&groups, GROUP, 40), [ROUTER]);
    }

    #[test]
    fn rfc4541_2_1_1_what_makes_no_router() {
        let general = [0x11, 10, 0, 0, 0, 0, 0, 0];
        // A switch that asks in a router's place: hosts answer, and it is none.
        let mut groups = Groups::default();
        groups.greet(1, 5);
        hear(&mut groups, &igmp([0; 4], [224, 0, 0, 1], &general), 1, 10);
        assert_eq!(who(&groups, GROUP, 12), [0_u16; 0]);
        // A question about one group, and one that not all hosts hear.
        let specific = [0x11, 10, 0, 0, 239, 1, 2, 3];
        for packet in [
            igmp([10, 0, 0, 9], GROUP, &specific),
            igmp([10, 0, 0, 9], GROUP, &general),
        ] {
            let mut groups = Groups::default();
            assert_eq!(hear(&mut groups, &packet, 1, 10), Audience::All);
            assert_eq!(who(&groups, GROUP, 12), ALL);
        }
        // To all hosts by IP, and to a group's by Ethernet.
        let mut groups = Groups::default();
        let query = igmp_query();
        let message = membership::read(Family::V4, &query);
        groups.hear(message, Family::V4, (0, mac(GROUP)), 1, 10);
        assert_eq!(who(&groups, GROUP, 12), ALL);
    }

    #[test]
    fn routers_that_are_known_get_everything_and_reports() {
        let mut groups = asked();
        groups.set_router(6, true);
        assert_eq!(who(&groups, GROUP, 12), [ROUTER, 6]);
        let report = hear(&mut groups, &igmp_report(true, GROUP), 1, 12);
        assert_eq!(listed(report), [ROUTER, 6]);
        groups.set_router(6, false);
        assert_eq!(who(&groups, GROUP, 12), [1, ROUTER]);
    }

    #[test]
    fn a_port_that_is_gone_is_in_no_group() {
        let mut groups = asked();
        hear(&mut groups, &igmp_report(true, GROUP), 1, 11);
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
        hear(&mut groups, &igmp_report(true, GROUP), 2, 13);
        assert_eq!(who(&groups, GROUP, 13), [1, 2, ROUTER]);
        // What is over makes room again.
        hear(&mut groups, &igmp_query(), ROUTER, 200);
        let later = 14 + MEMBERSHIP;
        groups.join(0, IpAddr::from([239, 6, 0, 0]), 1, later);
        assert_eq!(groups.count, 1);
        assert_eq!(who(&groups, GROUP, later), [ROUTER]);
    }

    #[test]
    fn a_network_remembers_so_many_memberships() {
        let mut groups = asked();
        let ports = u16::try_from(MAX_MEMBERSHIPS / MAX_GROUPS_PER_PORT).unwrap();
        for port in 0..ports {
            many(&mut groups, 100 + port, MAX_GROUPS_PER_PORT, 12);
        }
        assert_eq!(groups.count, MAX_MEMBERSHIPS);
        hear(&mut groups, &igmp_report(true, GROUP), 1, 13);
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
            groups.greet(port, 5);
            let message = membership::read(Family::V6, packet);
            groups.hear(message, Family::V6, (0, to), port, 10);
        }
        let who = |text: &str| {
            let to = address(text.parse().unwrap());
            listed(groups.audience(Family::V6, 0, to, 12))
        };
        assert_eq!(who("ff05::1:3"), [1, ROUTER]);
        assert_eq!(who("ff05::1:4"), [ROUTER]);
        for local in ["ff02::1", "ff02::1:ff00:1"] {
            assert_eq!(who(local), ALL, "{local}");
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
}
