//! IGMP and MLD snooping (RFC 4541): learns from queries and reports which ports are members of which multicast
//! groups.
//!
//! At first, the frames of every group go to all ports. After a router has sent a general query and the
//! hosts have had time to answer, frames of a group go only to its members and to routers: in that VLAN,
//! for that family, and as long as the router continues to send queries. Without a querier, multicast is
//! flooded.
//!
//! A port gets the frames of all groups until it has had time to answer a general query, because a new VM
//! may have joined its groups on another host. A port with more memberships than the limit also gets the
//! frames of all groups.

use std::collections::HashMap;
use std::net::IpAddr;

use super::membership::{Change, Family, Message, Query};
use crate::limits::{LEAVE, MAX_GROUPS_PER_PORT, MAX_MEMBERSHIPS, MAX_PORTS, MEMBERSHIP, QUERIER};
use crate::mac::Mac;

/// A set of ports, with one bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports([u64; MAX_PORTS / 64]);

impl Ports {
    /// Adds a port.
    pub fn insert(&mut self, port: u16) {
        if let Some(word) = self.0.get_mut(usize::from(port / 64)) {
            *word |= 1 << (port % 64);
        }
    }

    /// Returns whether a port is in the set.
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        let word = self.0.get(usize::from(port / 64));
        word.is_some_and(|word| word >> (port % 64) & 1 == 1)
    }
}

/// The group memberships of a network. Times are in seconds.
#[derive(Debug, Default)]
pub struct Groups {
    members: HashMap<(u16, Mac), Vec<Member>>,
    /// Number of memberships.
    count: usize,
    queriers: HashMap<(u16, Family), Querier>,
    ports: Vec<Port>,
    swept: u32,
}

/// The membership of a port in a group. Groups with the same MAC address share frames, but have separate
/// memberships.
#[derive(Debug)]
struct Member {
    group: IpAddr,
    port: u16,
    until: u32,
}

#[derive(Clone, Debug, Default)]
struct Port {
    /// When the port got its present VM.
    since: u32,
    /// Until then the port gets the frames of all groups.
    all_until: u32,
    memberships: usize,
    /// The port is configured as a router port.
    router: bool,
}

/// The queriers of a VLAN.
#[derive(Debug, Default)]
struct Querier {
    /// When the querier expires.
    until: u32,
    /// The time of the last general query that all hosts have had time to answer.
    answered: Option<u32>,
    /// The general query that hosts are answering: its time, and the end of the response time.
    open: Option<(u32, u32)>,
    routers: Vec<(u16, u32)>,
}

impl Querier {
    /// Returns the time of the last general query whose response time is over.
    fn answered(&self, now: u32) -> Option<u32> {
        let last = match self.open {
            Some((asked, end)) if now > end => Some(asked),
            _ => self.answered,
        };
        last.filter(|_| now <= self.until)
    }

    fn handle_query(&mut self, query: Query, port: u16, now: u32) {
        // The previous querier has expired.
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

/// The ports that get a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressPorts {
    /// All ports.
    All,
    /// These ports.
    Some(Ports),
}

impl EgressPorts {
    /// Returns whether a port gets the frame.
    #[inline]
    #[must_use]
    pub fn contains(&self, port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Some(ports) => ports.contains(port),
        }
    }
}

impl Groups {
    /// Records that a port has a new VM or uplink.
    pub fn note_new_vm(&mut self, port: u16, now: u32) {
        if let Some(port) = self.port(port) {
            port.since = now;
        }
    }

    /// Configures whether a port is a router port.
    pub fn set_router(&mut self, port: u16, router: bool) {
        if let Some(port) = self.port(port) {
            port.router = router;
        }
    }

    /// Removes the memberships and queriers of a port.
    pub fn remove(&mut self, number: u16) {
        if let Some(port) = self.ports.get_mut(usize::from(number)) {
            (port.memberships, port.all_until) = (0, 0);
        }
        for querier in self.queriers.values_mut() {
            querier.routers.retain(|(at, _)| *at != number);
        }
        self.retain(|member| member.port != number);
    }

    fn port(&mut self, number: u16) -> Option<&mut Port> {
        let index = usize::from(number);
        if index < MAX_PORTS && index >= self.ports.len() {
            self.ports.resize(index + 1, Port::default());
        }
        self.ports.get_mut(index)
    }

    /// Learns from a message of a port in a VLAN to this address; returns the ports that get the message.
    pub fn handle_message(
        &mut self,
        message: Message<'_>,
        family: Family,
        (vlan, destination): (u16, Mac),
        port: u16,
        now: u32,
    ) -> EgressPorts {
        match message {
            Message::Query(query) => {
                if query.general && destination == all_hosts(family) {
                    let querier = self.queriers.entry((vlan, family)).or_default();
                    querier.handle_query(query, port, now);
                }
                EgressPorts::All
            }
            Message::Report(report) => {
                for change in report.changes() {
                    match change {
                        Change::Join(group) => self.join(vlan, group, port, now),
                        Change::Leave(group) => self.leave(vlan, group, port, now),
                    }
                }
                // RFC 4541, 2.1.1: a host that receives a report would suppress its own.
                EgressPorts::Some(self.routers(vlan, family, now))
            }
            Message::Other => self.egress_ports(family, vlan, destination, now),
        }
    }

    /// Returns the ports that get a frame to this address.
    #[must_use]
    pub fn egress_ports(
        &self,
        family: Family,
        vlan: u16,
        destination: Mac,
        now: u32,
    ) -> EgressPorts {
        let querier = self.queriers.get(&(vlan, family));
        let answered = querier.and_then(|querier| querier.answered(now));
        let (Some(answered), false) = (answered, is_always_flooded(destination)) else {
            return EgressPorts::All;
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
        EgressPorts::Some(ports)
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
        // At most once a second, however many reports hosts send.
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

    /// Shortens a membership to [`LEAVE`] seconds: another host behind the port may still be a member, and
    /// answers the router's query within this time (RFC 3376, 8.8).
    fn leave(&mut self, vlan: u16, group: IpAddr, port: u16, now: u32) {
        let members = self.members.get_mut(&(vlan, address(group)));
        for member in members.into_iter().flatten() {
            if member.group == group && member.port == port {
                member.until = member.until.min(now.saturating_add(LEAVE));
            }
        }
    }

    /// Removes expired memberships and queriers.
    pub fn sweep(&mut self, now: u32) {
        self.swept = now;
        self.retain(|member| now <= member.until);
        self.queriers.retain(|_, querier| now <= querier.until);
    }

    /// Returns the number of memberships.
    #[cfg(test)]
    pub(crate) fn memberships(&self) -> usize {
        self.count
    }

    fn retain(&mut self, condition: impl Fn(&Member) -> bool) {
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

/// Returns the MAC address of a group (RFC 1112, 6.4, and RFC 2464, 7).
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

/// Returns the MAC address of all hosts of a family.
fn all_hosts(family: Family) -> Mac {
    Mac::from_octets(match family {
        Family::V4 => [1, 0, 0x5e, 0, 0, 1],
        Family::V6 => [0x33, 0x33, 0, 0, 0, 1],
    })
}

/// Returns whether frames to this address always go to all ports: those of 224.0.0.0/24, of ff02::1 (RFC
/// 4541, 2.1.2 and 3), and of neighbour discovery, which must work even for a host whose report was lost.
fn is_always_flooded(destination: Mac) -> bool {
    matches!(
        destination.octets(),
        [1, 0, 0x5e, 0, 0, _] | [0x33, 0x33, 0, 0, 0, 1] | [0x33, 0x33, 0xff, ..]
    )
}

/// Returns the family of a group address, for frames with this EtherType.
#[must_use]
pub fn family(destination: Mac, kind: u16) -> Option<Family> {
    match (destination.octets(), kind) {
        ([1, 0, 0x5e, ..], 0x0800) => Some(Family::V4),
        ([0x33, 0x33, ..], 0x86dd) => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
