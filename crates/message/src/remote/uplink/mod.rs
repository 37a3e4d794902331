//! The uplink: connects members' endpoints with those of other hosts, by frames of MXoE on a
//! network interface.
//!
//! # Theory of operation
//!
//! An uplink is a member like the others, with a page, a control window and links. The broker
//! routes to it each connect to a NIC id that is not of this host. Where a gateway passes a window
//! on to an endpoint, the uplink uses that end of the window itself ([`link`]): it turns records
//! into messages that its nodes ([`mxoe::Node`]) send, and messages that the nodes receive into
//! records.
//!
//! Each member that has joined is a host on the wire, with its NIC id as address and a node of its
//! own ([`wire_member`]). So other hosts find a member by its NIC id on whichever host it runs, and
//! no member can send under another's address. The broker reports which members have joined.
//! Nodes discover remote hosts by their announcements. The uplink sends their names through the
//! broker to all gateways, which write them into their board's
//! [`directory`](super::directory).
//!
//! A connect from another host is passed on like any other, and the endpoint itself accepts or
//! refuses it. Until then, and while the endpoint takes no records, the node does not acknowledge
//! what arrives. A link ends when its endpoint is closed or the peer is lost. The node still sends
//! what the endpoint had sent before its end.

mod closing;
mod control;
mod link;
mod network;
mod node_events;
mod outgoing;
mod run;
mod sharing;
mod state;
mod timers;
mod wire_member;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use mxoe::{Datagrams, Node, Port};
use window::Side;
use window::region::{MemberPage, Region};
use window::waiter::{Token, WaitResult, Waiter};

use self::link::{EndpointPair, Link, NodeContext};
use self::network::Network;
use self::state::{State, WaitingDial};
use self::timers::Timers;
use self::wire_member::WireMember;
use super::adaptive_polling::AdaptivePolling;
use super::control_channel::ControlChannel;
use super::control_message::{ControlMessage, FROM_MEMBER, LinkId};
use super::interface_folder::DaemonInterface;
use super::names::Names;
use super::shared_interface::SharedInterface;
use super::transport::{HostDoorbell, Transport, join_broker, open_transport};
use crate::address::Board;
use crate::error::Error;
use crate::peer::Fault;

pub use super::directory::NamedNic;

/// The options of an uplink.
#[derive(Debug)]
pub struct Options {
    /// The broker's socket for it.
    pub socket: PathBuf,
    /// The network interface, which receives for all members. `None` in a program that takes all frames in datagrams.
    pub port: Option<Port>,
    /// Set in a program that takes datagrams.
    pub datagrams: Option<Datagrams>,
    /// All members of this host.
    pub members: Vec<NamedNic>,
    /// How long a host may be silent before its links end.
    pub peer_timeout: Duration,
    /// Set if programs of this host may serve the interface, too.
    pub shared: Option<DaemonInterface>,
}

/// The counters of an uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The counters of all members' nodes.
    pub wire: mxoe::Counters,
    /// Frames that were lost because the interface's ring was full.
    pub lost: u64,
}

/// Connects the members of this host with those of other hosts.
#[derive(Debug)]
pub struct Uplink {
    waiter: Waiter,
    region: Region,
    page: MemberPage,
    /// The number of its request to join.
    join_number: u32,
    doorbell: HostDoorbell,
    control: ControlChannel,
    network: Network,
    /// The interface took all frames in the last turn.
    sent: bool,
    members: Vec<NamedNic>,
    /// The NIC id of the host itself. That of a VM follows from its name.
    host_nic: Option<u64>,
    /// The names that the host has received.
    names: Names,
    peer_timeout: Duration,
    wire_members: BTreeMap<u64, WireMember>,
    /// Counters without those of the present wire members.
    counters: Counters,
    links: HashMap<LinkId, State>,
    /// The current link of each pair of endpoints.
    pairs: HashMap<EndpointPair, LinkId>,
    /// Pairs whose endpoint is closed, and whose peer has not acknowledged everything yet.
    closing: Vec<EndpointPair>,
    /// Connects that wait for the end of an earlier connection of the same pair, or for the discovery of the other host.
    waiting: Vec<WaitingDial>,
    next: u32,
    /// The program that has the endpoints calls this uplink itself (see [`Link::stay_in_process`]). Such an uplink tells partners of a
    /// closed endpoint at once, because it may end next. Otherwise they notice by the answer to their next frame.
    pub(super) in_process: bool,
    /// Set if other processes may serve the same interface.
    pub(super) sharing: Option<SharedInterface>,
    /// Whether it polls or sleeps when nothing was moved.
    polling: AdaptivePolling,
    timers: Timers,
}

const HOST: Token = 0;
const WIRE: Token = 1;
const OTHER: Token = 2;

impl Uplink {
    /// Joins the broker.
    ///
    /// # Errors
    /// The host does not answer, or has no member page for it.
    pub fn join(options: Options) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (doorbell, region, id) = open_transport(&Transport::Socket(options.socket))?;
        if let HostDoorbell::Client(client) = &doorbell {
            waiter.add(client, HOST)?;
        }
        let network = Network::new(options.port, options.datagrams);
        network.begin_wakeups(&waiter, WIRE)?;
        let place = u32::from(id).saturating_sub(1);
        let page = region.page(place);
        let no_page = || {
            Error::Join(
                "the host assigned no member of the region: use the same release on both sides"
                    .to_owned(),
            )
        };
        let page = page.ok_or_else(no_page)?;
        let join_number = join_broker(&page, &doorbell)?;
        let control = region.control_window(place).ok_or_else(no_page)?;
        let control = ControlChannel::new(control.ends(Side::Attacher)?);
        let is_host = |named_nic: &&NamedNic| named_nic.nic != Board::nic_of(&named_nic.name);
        let host_nic = options.members.iter().find(is_host).map(|host| host.nic);
        let mut uplink = Self {
            waiter,
            region,
            page,
            join_number,
            doorbell,
            control,
            network,
            sent: true,
            members: options.members,
            host_nic,
            names: Names::default(),
            peer_timeout: options.peer_timeout,
            wire_members: BTreeMap::new(),
            counters: Counters::default(),
            links: HashMap::new(),
            pairs: HashMap::new(),
            closing: Vec::new(),
            waiting: Vec::new(),
            next: 0,
            in_process: false,
            sharing: options.shared.map(DaemonInterface::sharing),
            polling: AdaptivePolling::default(),
            timers: Timers::new(),
        };
        // The first NIC id to report a name keeps it, so the members report theirs first.
        for named_nic in uplink.members.clone() {
            uplink.name(&named_nic).map_err(broken)?;
        }
        Ok(uplink)
    }

    /// Makes [`run`](Self::run) call `go_on` also when this descriptor is readable.
    ///
    /// # Errors
    /// There is no memory left, or epoll does not support the descriptor.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// Returns the counters since it joined.
    ///
    /// # Errors
    /// The kernel does not report lost frames.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.counters.lost += u64::from(self.network.lost()?);
        let nodes = self
            .wire_members
            .values()
            .map(|wire_member| &wire_member.node);
        let wire = nodes.map(Node::counters);
        Ok(Counters {
            wire: wire.fold(self.counters.wire, mxoe::Counters::plus),
            ..self.counters
        })
    }

    /// Serves everything once, without waiting.
    pub(super) fn turn(&mut self) -> Result<(), Error> {
        self.poll().map(drop)
    }

    /// The same, and handles the events of the interface and of the host's socket. Without that, the uplink's descriptor
    /// stays readable.
    pub(super) fn turn_with_sockets(&mut self) -> Result<(), Error> {
        let woken = self.waiter.wait(Some(Duration::ZERO))?;
        self.check_sockets(&woken)?;
        self.turn()
    }

    /// Returns whether there is no link, and the partners have acknowledged what was sent.
    pub(super) fn is_idle(&self) -> bool {
        self.links.is_empty() && self.closing.is_empty() && self.waiting.is_empty()
    }

    /// Serves everything once; returns whether anything was moved.
    fn poll(&mut self) -> Result<bool, Error> {
        // One read of the clock for a turn, which takes some microseconds.
        let now = self.network.now();
        let has_records = self.has_records();
        let received = match self.network.may_skip_look() && has_records {
            true => {
                self.network.skip_look();
                false
            }
            false => self.receive_frames(now),
        };
        let is_idle = !received && !has_records && !self.control.has_message();
        // Most turns of a program that polls.
        if is_idle && self.sent && self.timers.are_settled(now) {
            return Ok(false);
        }
        self.pass_on(now, received)
    }

    /// Passes on what has arrived from the network, the endpoints and the host.
    fn pass_on(&mut self, now: Duration, received: bool) -> Result<bool, Error> {
        let mut moved = received | self.handle_node_events()?;
        moved |= self.handle_host_messages().map_err(broken)?;
        moved |= self.serve_links(now).map_err(broken)?;
        if self.timers.begin(now, moved) {
            self.run_timers(now);
            // The uplink may sleep next, and nothing wakes it for these.
            moved |= self.handle_node_events()?;
        }
        self.close_finished().map_err(broken)?;
        self.release_closed()?;
        self.sent = true;
        for wire_member in self.wire_members.values_mut() {
            self.sent &= self.network.send(&mut wire_member.node)?;
        }
        self.control.flush().map_err(broken)?;
        if std::mem::take(&mut self.control.published) {
            self.doorbell.ring();
        }
        let is_settled = !moved && !self.has_held_back(now);
        self.timers.end_turn(is_settled);
        Ok(moved)
    }

    /// Returns whether an endpoint has given anything to be sent.
    fn has_records(&mut self) -> bool {
        links(&mut self.links).any(|link| link.has_records())
    }

    /// Returns whether anything waits for room: the next turn may find it.
    fn has_held_back(&mut self, now: Duration) -> bool {
        !self.closing.is_empty()
            || !self.waiting.is_empty()
            || self.any_link(now, |link, context| link.holds_back(context))
    }

    /// Returns whether this is true of any link and the node of its member.
    fn any_link(
        &mut self,
        now: Duration,
        is_true: impl Fn(&mut Link, &NodeContext<'_>) -> bool,
    ) -> bool {
        let wire_members = &mut self.wire_members;
        links(&mut self.links).any(|link| {
            let wire_member = wire_members.get_mut(&link.pair.nic);
            wire_member.is_some_and(|wire_member| {
                let node = &mut wire_member.node;
                is_true(link, &NodeContext { node, now })
            })
        })
    }

    /// Calls a function with each link and the node of its member.
    fn each_link(&mut self, now: Duration, call: impl Fn(&mut Link, &NodeContext<'_>)) {
        let _none = self.any_link(now, |link, context| {
            call(link, context);
            false
        });
    }

    /// Passes each received frame to the nodes that it is for.
    fn receive_frames(&mut self, now: Duration) -> bool {
        let (wire_members, sharing) = (&mut self.wire_members, &mut self.sharing);
        self.network.receive(now, wire_members, |frame| {
            sharing.as_mut().is_none_or(|shared| shared.accepts(frame))
        })
    }

    /// Runs the nodes' timers, and removes members that left some time ago.
    fn run_timers(&mut self, now: Duration) {
        for wire_member in self.wire_members.values_mut() {
            wire_member.node.tick(now);
        }
        let wire = &mut self.counters.wire;
        self.wire_members.retain(|_, wire_member| {
            let over = wire_member.is_over(now);
            if over {
                *wire = wire.plus(wire_member.node.counters());
            }
            !over
        });
    }

    /// Serves all links.
    fn serve_links(&mut self, now: Duration) -> Result<bool, Fault> {
        let (mut moved, mut faulty) = (false, Vec::new());
        for (&id, state) in &mut self.links {
            let State::Up(link) = state else {
                continue;
            };
            let Some(wire_member) = self.wire_members.get_mut(&link.pair.nic) else {
                continue;
            };
            let node = &mut wire_member.node;
            match link.move_records(&mut NodeContext { node, now }) {
                Ok(some) => moved |= some,
                Err(_) => faulty.push(id),
            }
            if link.needs_wakeup() {
                self.control.send(ControlMessage::Ring { link: id })?;
            }
        }
        // Only the link ends: the fault was of one endpoint, not of all its member's.
        for id in faulty {
            self.cut(id)?;
        }
        Ok(moved)
    }

    /// Handles the events of the interface and of the host's socket.
    fn check_sockets(&mut self, woken: &WaitResult) -> Result<(), Error> {
        if woken.tokens.contains(&WIRE) {
            self.network.check()?;
        }
        match &self.doorbell {
            HostDoorbell::Client(client)
                if woken.tokens.contains(&HOST) && !client.take_wakeups() =>
            {
                Err(Error::Join("the host is gone".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Returns an unused link number.
    fn number(&mut self) -> LinkId {
        loop {
            self.next = self.next.wrapping_add(1);
            let link = self.next | FROM_MEMBER;
            if !self.links.contains_key(&link) {
                return link;
            }
        }
    }
}

impl AsFd for Uplink {
    /// Returns the descriptor that is readable when there is something to do.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }
}

fn links(all: &mut HashMap<LinkId, State>) -> impl Iterator<Item = &mut Link> {
    all.values_mut().filter_map(|state| match state {
        State::Up(link) => Some(&mut **link),
        _ => None,
    })
}

fn broken(fault: Fault) -> Error {
    Error::Join(format!("the host's control channel is broken: {fault}"))
}
