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

    fn handle_query(&mut self, query: Query, port: u16, now: u32) {
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
pub enum EgressPorts {
    /// Everybody.
    All,
    /// These.
    Some(Ports),
}

impl EgressPorts {
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
    pub fn note_new_vm(&mut self, port: u16, now: u32) {
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
                // RFC 4541, 2.1.1: hosts that hear it would keep theirs to themselves.
                EgressPorts::Some(self.routers(vlan, family, now))
            }
            Message::Other => self.egress_ports(family, vlan, destination, now),
        }
    }

    /// Who gets a frame to this address.
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
        let (Some(answered), false) = (answered, everybodys(destination)) else {
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

    /// How many ports are in how many groups.
    #[cfg(test)]
    pub(crate) fn memberships(&self) -> usize {
        self.count
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
mod tests;
