//! The way to other hosts: members' endpoints, in the frames of MXoE on an interface.
//!
//! # Theory of operation
//!
//! An uplink is a member like the others, with a seat, a trunk and windows; the switchboard sends
//! it whoever connects to a NIC that is not of this host. Where a gateway passes a window on to an
//! endpoint, the uplink is at its end itself ([`link`]): it turns records into what its nodes
//! ([`mxoe::Node`]) send, and what they take into records.
//!
//! Each member that is here is a host on the wire, with its NIC id for an address: its own node
//! ([`wire_member`]). So a member is found by its NIC id wherever it lives, and none can send under
//! another's address. The switchboard says who is here. Who is there, they find by their
//! announcements. The names go through the switchboard to every gateway, which writes them into its
//! board's [`directory`](super::directory).
//!
//! Who connects from there is passed on like anybody else who connects, and the endpoint itself
//! says whether it is let in. Until then, and when it takes nothing, what comes is not
//! acknowledged. A link ends when its endpoint is closed or the peer is lost; what the endpoint
//! sent before its end still goes out.

mod control;
mod link;
mod node_events;
mod outgoing;
mod wire_member;

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mxoe::{Node, Port};
use window::Side;
use window::doorbell;
use window::region::{Region, Seat};
use window::waiter::{Token, Waiter};

use self::link::{Far, Link, Pair};
use self::wire_member::WireMember;
use super::control_message::{ControlMessage, FROM_MEMBER, LinkId};
pub use super::directory::Face;
use super::names::Names;
use super::transport::{Bell, Transport, begin, reach};
use super::trunk::Trunk;
use crate::error::Error;
use crate::peer::Fault;

/// What an uplink is made of.
#[derive(Debug)]
pub struct Options {
    /// The switchboard's socket for it.
    pub socket: PathBuf,
    /// The interface, which hears for all members.
    pub port: Port,
    /// All members of this host.
    pub members: Vec<Face>,
    /// How long a host may be silent before it is given up.
    pub patience: Duration,
}

/// What an uplink has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What members' nodes have done.
    pub wire: mxoe::Counters,
    /// Frames that came when the interface's ring was full, and were lost.
    pub lost: u64,
}

/// Joins the members of this host and those of others.
#[derive(Debug)]
pub struct Uplink {
    waiter: Waiter,
    region: Region,
    seat: Seat,
    /// What it began with.
    began: u32,
    bell: Bell,
    trunk: Trunk,
    port: Port,
    /// The interface took all there was.
    sent: bool,
    members: Vec<Face>,
    /// What the host was told.
    names: Names,
    patience: Duration,
    residents: HashMap<u64, WireMember>,
    /// Without what residents that are here count.
    counters: Counters,
    links: HashMap<LinkId, State>,
    /// The link of a pair that counts.
    pairs: HashMap<Pair, LinkId>,
    /// Whose endpoint is closed, and who has not acknowledged everything yet.
    leaving: Vec<Pair>,
    next: u32,
    /// When something last moved.
    moved: Option<Instant>,
}

/// How far a link is.
#[derive(Debug)]
enum State {
    /// An endpoint here connects; the other host has not answered yet.
    Dialing { pair: Pair, window: u32 },
    /// Somebody there connects; the endpoint here has not answered yet. Whether it is connected on
    /// the wire already, and the key it gave.
    Offered { pair: Pair, met: bool, key: u32 },
    /// It works.
    Up(Box<Link>),
}

impl State {
    fn pair(&self) -> Pair {
        match self {
            Self::Dialing { pair, .. } | Self::Offered { pair, .. } => *pair,
            Self::Up(link) => link.pair,
        }
    }
}

const HOST: Token = 0;
const WIRE: Token = 1;
const OTHER: Token = 2;

/// How long an uplink looks on after something moved.
const SPIN: Duration = Duration::from_micros(50);

/// Between two looks at the clock.
const ROUNDS: u32 = 8;

/// However busy it is, after so long it says that it lives, and asks whether to go on.
const BREATH: Duration = Duration::from_millis(100);

/// When an interface that took no more is tried again.
const FULL_PAUSE: Duration = Duration::from_micros(50);

/// How often the host is told that the uplink lives.
const BEAT: Duration = Duration::from_secs(1);

impl Uplink {
    /// Join the switchboard.
    ///
    /// # Errors
    /// The host does not answer, or has no seat for it.
    pub fn join(options: Options) -> Result<Self, Error> {
        let waiter = Waiter::new()?;
        let (bell, region, id) = reach(&Transport::Socket(options.socket))?;
        if let Bell::Client(client) = &bell {
            waiter.add(client, HOST)?;
        }
        waiter.add(&options.port, WIRE)?;
        let place = u32::from(id).saturating_sub(1);
        let seat = region.seat(place);
        let seatless = || Error::Join("the host gave no seat".to_owned());
        let seat = seat.ok_or_else(seatless)?;
        let began = begin(&seat, &bell)?;
        let trunk = region.trunk(place).ok_or_else(seatless)?;
        let trunk = Trunk::new(trunk.ends(Side::Guest)?);
        let mut uplink = Self {
            waiter,
            region,
            seat,
            began,
            bell,
            trunk,
            port: options.port,
            sent: true,
            members: options.members,
            names: Names::default(),
            patience: options.patience,
            residents: HashMap::new(),
            counters: Counters::default(),
            links: HashMap::new(),
            pairs: HashMap::new(),
            leaving: Vec::new(),
            next: 0,
            moved: None,
        };
        // Whoever is first keeps a name, so it is the members.
        for face in uplink.members.clone() {
            uplink.name(&face).map_err(broken)?;
        }
        Ok(uplink)
    }

    /// Have `go_on` of [`run`](Self::run) asked also when there is something to read here.
    ///
    /// # Errors
    /// No memory, or no descriptor one can wait for.
    pub fn watch(&self, fd: impl AsFd) -> Result<(), Error> {
        Ok(self.waiter.add(fd, OTHER)?)
    }

    /// What it has done since it joined.
    ///
    /// # Errors
    /// The kernel does not say what it lost.
    pub fn counters(&mut self) -> Result<Counters, Error> {
        self.counters.lost += u64::from(self.port.lost()?);
        let nodes = self.residents.values().map(|resident| &resident.node);
        let wire = nodes.map(Node::counters);
        Ok(Counters {
            wire: wire.fold(self.counters.wire, mxoe::Counters::plus),
            ..self.counters
        })
    }

    /// Work until `go_on`, asked at least once a second, says no.
    ///
    /// # Errors
    /// The interface or the host is gone, or the host began anew without this uplink.
    pub fn run(&mut self, mut go_on: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        while go_on(self) {
            self.seat.beat();
            if self.seat.heard() != self.began {
                return Err(Error::Join("the host has ended this uplink".to_owned()));
            }
            self.spin()?;
            self.sleep()?;
        }
        Ok(())
    }

    /// Work, and look on for a while if something moved just now.
    fn spin(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            for _ in 0..ROUNDS {
                match self.turn()? {
                    true => self.moved = Some(Instant::now()),
                    // Whoever it waits for may need the processor.
                    false => std::thread::yield_now(),
                }
            }
            let idle = self.moved.is_none_or(|moved| moved.elapsed() >= SPIN);
            if idle || began.elapsed() >= BREATH {
                return Ok(());
            }
        }
    }

    /// One round over everything; whether anything moved.
    fn turn(&mut self) -> Result<bool, Error> {
        let mut moved = self.hear_wire();
        moved |= self.hear_nodes()?;
        moved |= self.hear_host().map_err(broken)?;
        moved |= self.serve_links().map_err(broken)?;
        self.see_off();
        self.sent = true;
        for resident in self.residents.values_mut() {
            self.sent &= self.port.send(&mut resident.node)?;
        }
        self.trunk.flush().map_err(broken)?;
        if std::mem::take(&mut self.trunk.told) {
            self.bell.ring();
        }
        Ok(moved)
    }

    /// Give each frame to whom it is for.
    fn hear_wire(&mut self) -> bool {
        let now = self.port.now();
        let residents = &mut self.residents;
        let count = self.port.receive(|frame| {
            for resident in residents.values_mut() {
                if resident.is_meant(frame) {
                    resident.node.receive(now, frame);
                }
            }
        });
        let wire = &mut self.counters.wire;
        residents.retain(|_, resident| {
            let over = resident.is_over(now);
            if over {
                *wire = wire.plus(resident.node.counters());
            }
            !over
        });
        for resident in residents.values_mut() {
            resident.node.tick(now);
        }
        count > 0
    }

    /// Look after all links.
    fn serve_links(&mut self) -> Result<bool, Fault> {
        let now = self.port.now();
        let (mut moved, mut faulty) = (false, Vec::new());
        for (&id, state) in &mut self.links {
            let State::Up(link) = state else {
                continue;
            };
            let Some(resident) = self.residents.get_mut(&link.pair.nic) else {
                continue;
            };
            let node = &mut resident.node;
            match link.turn(&mut Far { node, now }) {
                Ok(some) => moved |= some,
                Err(_) => faulty.push(id),
            }
            if link.must_ring() {
                self.trunk.say(ControlMessage::Ring { link: id })?;
            }
        }
        // Only the link ends: it was one endpoint, not all of its member's.
        for id in faulty {
            self.cut(id)?;
        }
        Ok(moved)
    }

    /// Tell everybody, look once more, then sleep.
    fn sleep(&mut self) -> Result<(), Error> {
        for link in links(&mut self.links) {
            link.prepare_to_wait();
        }
        // Members are on other kernels, or take part as if they were: they have a fence each.
        let _told = doorbell::settle();
        let now = self.port.now();
        let mut limit = match self.has_work() {
            true => Duration::ZERO,
            false => BEAT,
        };
        if !self.sent {
            limit = limit.min(FULL_PAUSE);
        }
        let due = self.residents.values().filter_map(WireMember::deadline);
        let due = due.min().map_or(BEAT, |due| due.saturating_sub(now));
        let woken = self.waiter.wait(Some(limit.min(due)))?;
        for link in links(&mut self.links) {
            link.finish_wait();
        }
        if woken.tokens.contains(&WIRE) {
            self.port.check()?;
        }
        match &self.bell {
            Bell::Client(client) if woken.tokens.contains(&HOST) && !client.hear() => {
                Err(Error::Join("the host is gone".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Whether a turn would move something.
    fn has_work(&mut self) -> bool {
        let now = self.port.now();
        let residents = &mut self.residents;
        self.trunk.has_note()
            || links(&mut self.links).any(|link| {
                let resident = residents.get_mut(&link.pair.nic);
                resident.is_some_and(|resident| {
                    let node = &mut resident.node;
                    link.has_work(&Far { node, now })
                })
            })
    }

    /// A number that no link has.
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

fn links(all: &mut HashMap<LinkId, State>) -> impl Iterator<Item = &mut Link> {
    all.values_mut().filter_map(|state| match state {
        State::Up(link) => Some(&mut **link),
        _ => None,
    })
}

fn broken(fault: Fault) -> Error {
    Error::Join(format!("the host's trunk is broken: {fault}"))
}
