//! Reads and changes the kernel's addresses, routes and neighbours: rtnetlink(7).

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily as SocketFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send,
    socket_with,
};

use crate::error::{AgentError, io};
use crate::plan::{Mac, Own, Route};

/// The protocol number of this agent's routes, which no other program uses (`/etc/iproute2/rt_protos`).
const PROTOCOL: u8 = 86;

/// Links, and addresses of both families: `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`,
/// `RTMGRP_IPV6_IFADDR`.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;

/// The most bytes that the kernel sends at once.
const MOST: usize = 64 << 10;

/// A netlink socket for requests.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// A netlink socket that receives changes of links and addresses.
#[derive(Debug)]
pub(crate) struct Changes(OwnedFd);

fn open(groups: u32, flags: SocketFlags) -> Result<OwnedFd, AgentError> {
    let make = || -> Result<OwnedFd, Errno> {
        let flags = SocketFlags::CLOEXEC | flags;
        let socket = socket_with(SocketFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, groups))?;
        Ok(socket)
    };
    io(make(), || "open a netlink socket".to_owned())
}

impl Changes {
    pub(crate) fn open() -> Result<Self, AgentError> {
        open(GROUPS, SocketFlags::NONBLOCK).map(Self)
    }

    /// Discards the received notifications.
    pub(crate) fn clear(&self) {
        let mut bytes = [0; 4096];
        // NOBUFS means that the kernel dropped notifications because the buffer was full. The agent
        // needs no contents: it only needs to know that something changed.
        while let Ok(_) | Err(Errno::NOBUFS) = recv(&self.0, &mut bytes[..], RecvFlags::TRUNC) {}
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, AgentError> {
        open(0, SocketFlags::empty()).map(Self)
    }

    /// Sets a device up.
    pub(crate) fn up(&self, index: u32) -> Result<(), AgentError> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Returns the addresses that peers can use, except those of this device.
    pub(crate) fn addresses(&self, but: u32) -> Result<Vec<Own>, AgentError> {
        let ask = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let own = |answer| match answer {
            RouteNetlinkMessage::NewAddress(message) => own(&message, but),
            _ => None,
        };
        Ok(self.dump(ask)?.into_iter().filter_map(own).collect())
    }

    /// Returns the routes that this agent or an earlier one made.
    pub(crate) fn routes(&self) -> Result<Vec<(Route, u32)>, AgentError> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut ask = RouteMessage::default();
            ask.header.address_family = family;
            for answer in self.dump(RouteNetlinkMessage::GetRoute(ask))? {
                if let RouteNetlinkMessage::NewRoute(message) = answer {
                    all.extend(ours(&message));
                }
            }
        }
        Ok(all)
    }

    /// Adds a route to a peer by this device, and its Ethernet address as a neighbour.
    pub(crate) fn add(&self, route: Route, index: u32, mac: Mac) -> Result<(), AgentError> {
        let flags = NLM_F_CREATE | NLM_F_REPLACE;
        let mut neighbour = neighbour(route.to, index);
        let address = NeighbourAttribute::LinkLayerAddress(mac.to_vec());
        neighbour.attributes.push(address);
        self.change(RouteNetlinkMessage::NewNeighbour(neighbour), flags)?;
        self.change(RouteNetlinkMessage::NewRoute(message(route, index)), flags)
    }

    /// Removes a route.
    pub(crate) fn remove(&self, route: Route, index: u32) -> Result<(), AgentError> {
        self.change(RouteNetlinkMessage::DelRoute(message(route, index)), 0)?;
        let neighbour = neighbour(route.to, index);
        self.change(RouteNetlinkMessage::DelNeighbour(neighbour), 0)
    }

    /// Leads IPv4 packets with this mark to this VM itself, by a rule and a table of routes of its own.
    pub(crate) fn lead_to_itself(&self, mark: u32, table: u32) -> Result<(), AgentError> {
        let route = RouteNetlinkMessage::NewRoute(route_to_itself(table));
        self.change(route, NLM_F_CREATE | NLM_F_REPLACE)?;
        let rule = RouteNetlinkMessage::NewRule(rule(mark, table));
        let result = self.exchange(rule, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
        let result = match result {
            // An agent that was killed left it.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            result => result.map(drop),
        };
        io(result, || "add a routing rule".to_owned())
    }

    /// Ends [`lead_to_itself`](Self::lead_to_itself).
    pub(crate) fn do_not_lead(&self, mark: u32, table: u32) -> Result<(), AgentError> {
        self.change(RouteNetlinkMessage::DelRule(rule(mark, table)), 0)?;
        self.change(RouteNetlinkMessage::DelRoute(route_to_itself(table)), 0)
    }

    /// Sends a change. It is no error to remove something that does not exist.
    fn change(&self, message: RouteNetlinkMessage, flags: u16) -> Result<(), AgentError> {
        let removes = matches!(
            message,
            RouteNetlinkMessage::DelRoute(_)
                | RouteNetlinkMessage::DelNeighbour(_)
                | RouteNetlinkMessage::DelRule(_)
        );
        let result = self.exchange(message, NLM_F_ACK | flags);
        let result = match result {
            Err(error) if removes && is_absence(&error) => Ok(()),
            result => result.map(drop),
        };
        io(result, || "change a route".to_owned())
    }

    fn dump(&self, message: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, AgentError> {
        let answers = self.exchange(message, NLM_F_DUMP);
        io(answers, || "ask for addresses and routes".to_owned())
    }

    /// Sends a request, and reads the whole reply.
    fn exchange(
        &self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> std::io::Result<Vec<RouteNetlinkMessage>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::from(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; MOST];
        loop {
            let (count, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            let mut rest = buffer.get(..count).unwrap_or_default();
            while !rest.is_empty() {
                let nonsense = |_| std::io::Error::from(ErrorKind::InvalidData);
                let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest);
                let answer = answer.map_err(nonsense)?;
                // Each message begins at a multiple of four bytes.
                let length = usize::try_from(answer.header.length).unwrap_or(usize::MAX);
                rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
                match answer.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) if error.code.is_some() => {
                        return Err(error.to_io());
                    }
                    NetlinkPayload::Error(_) => return Ok(answers),
                    NetlinkPayload::InnerMessage(message) => answers.push(message),
                    _ => {}
                }
            }
        }
    }
}

fn is_absence(error: &std::io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::SRCH | Errno::NOENT | Errno::NODEV))
}

fn own(message: &AddressMessage, but: u32) -> Option<Own> {
    if message.header.index == but || message.header.scope != AddressScope::Universe {
        return None;
    }
    // On a point-to-point link, `Address` is the peer's.
    let all = || message.attributes.iter();
    let local = all().find_map(|attribute| match attribute {
        AddressAttribute::Local(address) => Some(*address),
        _ => None,
    });
    let address = all().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    });
    Some(Own {
        address: local.or(address)?,
        prefix: message.header.prefix_len,
    })
}

/// The loopback device, which is the first one of every network namespace.
const LOOPBACK: u32 = 1;

/// Returns the rule for packets with a mark. The table's number is also the rule's priority.
fn rule(mark: u32, table: u32) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Priority(table),
        RuleAttribute::FwMark(mark),
        RuleAttribute::Table(table),
    ];
    message
}

/// Returns the route of all addresses to this VM itself.
fn route_to_itself(table: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Host;
    message.header.kind = RouteType::Local;
    message.attributes = vec![RouteAttribute::Table(table), RouteAttribute::Oif(LOOPBACK)];
    message
}

fn message(route: Route, index: u32) -> RouteMessage {
    let (family, length, scope) = match route.to {
        IpAddr::V4(_) => (AddressFamily::Inet, 32, RouteScope::Link),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128, RouteScope::Universe),
    };
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.destination_prefix_length = length;
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Other(PROTOCOL);
    message.header.scope = scope;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        RouteAttribute::Destination(route.to.into()),
        RouteAttribute::PrefSource(route.from.into()),
        RouteAttribute::Oif(index),
    ];
    message
}

/// Returns a route with this agent's protocol number, and its device.
fn ours(message: &RouteMessage) -> Option<(Route, u32)> {
    if message.header.protocol != RouteProtocol::Other(PROTOCOL) {
        return None;
    }
    let (mut to, mut from, mut index) = (None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => to = ip(address),
            RouteAttribute::PrefSource(address) => from = ip(address),
            RouteAttribute::Oif(number) => index = Some(*number),
            _ => {}
        }
    }
    let (to, from) = (to?, from?);
    Some((Route { to, from }, index?))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        _ => None,
    }
}

fn neighbour(to: IpAddr, index: u32) -> NeighbourMessage {
    let (family, address) = match to {
        IpAddr::V4(address) => (AddressFamily::Inet, NeighbourAddress::Inet(address)),
        IpAddr::V6(address) => (AddressFamily::Inet6, NeighbourAddress::Inet6(address)),
    };
    let mut message = NeighbourMessage::default();
    message.header.family = family;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![NeighbourAttribute::Destination(address)];
    message
}
