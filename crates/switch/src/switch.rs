//! Forwarding: from a transmit ring, through the residency table, into receive rings.
//!
//! A frame takes these steps, in bursts of up to [`BURST`]:
//! 1. look at the chains of a transmit ring ([`Ring::collect`](vhost::ring::Ring::collect));
//! 2. read and check each one's head, note its source, look up its destination;
//! 3. deliver runs of frames with the same destination into that port's receive ring, one copy
//!    each; hold back what finds no room, flood what has no known destination;
//! 4. hand the chains back, publish both rings, call whom it concerns.
//!
//! The sending port is taken out of the table of ports meanwhile, so a frame can never come back
//! to it. A fault of the sender ends the sender, a fault of a receiver the receiver.

use std::collections::BTreeMap;
use std::sync::RwLock;
use std::time::Instant;

use vhost::fault::Fault;
use vhost::net_header::NetHeader;

use crate::aside::Aside;
use crate::frame::{Head, Rest};
use crate::guard::groups::Groups;
use crate::guard::{Checked, Guard, Limiter, Rules, Snapshot};
use crate::limits::{BURST, MAX_PORTS, SWEEP};
use crate::mac::Mac;
use crate::multicast::Origin;
use crate::port::{Kind, Port};
use crate::residency::{Residency, Resident};
use crate::translate::Scratch;
use crate::uplink::BUFFER;

/// What one visit to a port achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit {
    /// Frames taken from it, delivered or dropped.
    pub moved: u32,
    /// It has more to send.
    pub more: bool,
}

/// A network: its ports and who lives where.
#[derive(Debug)]
pub struct Switch {
    pub(crate) ports: Vec<Option<Box<Port>>>,
    /// The residency table.
    pub table: Residency,
    /// Seconds since the start, for ageing.
    pub seconds: u32,
    /// The time of this round.
    pub now: Instant,
    /// Ports to be ended, and why.
    pub(crate) faults: Vec<(u16, Fault)>,
    /// Rules by port number, of ports to come too.
    pub(crate) rules: BTreeMap<u16, Rules>,
    /// Frames of multicast groups go to those who asked for them.
    pub snooping: bool,
    pub(crate) groups: RwLock<Groups>,
    /// What guards have seen of the frames of a burst.
    pub(crate) snapshots: Box<[Snapshot]>,
    pub(crate) scratch: Scratch,
    pub(crate) buffer: Box<[u8]>,
}

impl Default for Switch {
    fn default() -> Self {
        Self::new()
    }
}

impl Switch {
    /// A network without ports.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ports: Vec::with_capacity(MAX_PORTS),
            table: Residency::new(),
            seconds: 0,
            now: Instant::now(),
            faults: Vec::with_capacity(MAX_PORTS),
            rules: BTreeMap::new(),
            snooping: false,
            groups: RwLock::default(),
            snapshots: vec![Snapshot::default(); usize::from(BURST)].into_boxed_slice(),
            scratch: Scratch::default(),
            buffer: vec![0; BUFFER].into_boxed_slice(),
        }
    }

    /// The port at a number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_deref()
    }

    /// The port at a number.
    pub fn port_mut(&mut self, number: u16) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// All ports and their numbers.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &Port)> {
        (0_u16..)
            .zip(&self.ports)
            .filter_map(|(number, port)| Some((number, port.as_deref()?)))
    }

    /// Add a port; `false` when the number is taken or past the last one.
    pub fn add(&mut self, number: u16, mut port: Port) -> bool {
        if let Some(rules) = self.rules.get(&number) {
            port.guard = Guard::new(rules);
            port.limits = Limiter::new(&rules.limits);
        }
        let index = usize::from(number);
        if index < MAX_PORTS && index >= self.ports.len() {
            self.ports.resize_with(index + 1, || None);
        }
        match self.ports.get_mut(index) {
            Some(place @ None) => {
                let uplink = matches!(port.kind, Kind::Uplink(_));
                *place = Some(Box::new(port));
                let rules = self.rules.get(&number);
                let router = uplink || rules.is_some_and(|rules| rules.multicast_router);
                self.groups_mut().set_router(number, router);
                self.greet(number);
                true
            }
            _ => false,
        }
    }

    /// Remove a port, forget who lived there, what was set aside for it and what it was at fault
    /// for: the next port with its number may be another VM's. What it had set aside itself is
    /// lost.
    pub fn remove(&mut self, number: u16) -> Option<Box<Port>> {
        let mut port = self.ports.get_mut(usize::from(number))?.take()?;
        self.table.forget_port(number);
        self.groups_mut().forget(number);
        self.faults.retain(|(at, _)| *at != number);
        for other in self.ports.iter_mut().flatten() {
            other.counters.drops.receiver_down += other.forget_aside(number);
        }
        port.counters.drops.sender_gone += port.set_aside();
        Some(port)
    }

    /// What a port may send and receive from now on.
    pub fn set_rules(&mut self, number: u16, rules: Rules) {
        if let Some(port) = self.port_mut(number) {
            port.guard = Guard::new(&rules);
            port.limits = Limiter::new(&rules.limits);
            port.teacher.forget_last();
        }
        // What was learnt here may be of a VLAN that the port has left.
        self.table.forget_port(number);
        let uplink = self
            .port(number)
            .map(|port| matches!(port.kind, Kind::Uplink(_)));
        let router = uplink == Some(true) || rules.multicast_router;
        let groups = self.groups_mut();
        groups.forget(number);
        groups.set_router(number, router);
        self.rules.insert(number, rules);
    }

    /// Ports found at fault since the last call.
    pub fn take_fault(&mut self) -> Option<(u16, Fault)> {
        self.faults.pop()
    }

    /// Forget addresses not heard of for long, a few at a time.
    pub fn age(&mut self) {
        self.table.age(self.seconds);
        if self.seconds % SWEEP == 0 {
            let now = self.seconds;
            self.groups_mut().sweep(now);
        }
    }

    /// Move what a port has to send, up to one burst a ring.
    pub fn serve(&mut self, number: u16) -> Visit {
        let Some(mut port) = self
            .ports
            .get_mut(usize::from(number))
            .and_then(Option::take)
        else {
            return Visit::default();
        };
        let visit = match &mut port.kind {
            Kind::Guest(guest) => self.serve_guest(
                number,
                guest,
                &mut port.counters,
                &mut port.teacher,
                port.guard.as_deref_mut(),
                &port.limits,
            ),
            Kind::Uplink(uplink) => self.serve_uplink(
                number,
                uplink,
                &mut port.counters,
                &mut port.teacher,
                port.guard.as_deref_mut(),
                &port.limits,
            ),
        };
        if let Some(place) = self.ports.get_mut(usize::from(number)) {
            *place = Some(port);
        }
        visit.unwrap_or_else(|fault| {
            self.faults.push((number, fault));
            Visit::default()
        })
    }

    /// A VM has come to a port: it may be in multicast groups that nobody here has heard of.
    pub(crate) fn greet(&mut self, number: u16) {
        let now = self.seconds;
        self.groups_mut().greet(number, now);
    }

    /// Announce a VM on its behalf, after a migration (vhost-user, `SEND_RARP`).
    pub fn announce(&mut self, number: u16, mac: Mac) {
        let Some(mut port) = self
            .ports
            .get_mut(usize::from(number))
            .and_then(Option::take)
        else {
            return;
        };
        let checked = port
            .guard
            .as_ref()
            .map_or_else(Checked::default, |guard| guard.own());
        let resident = Resident::new(mac, checked.tci.vlan());
        self.note_source(resident, number, &mut port.teacher);
        self.greet(number);
        let frame = crate::rarp::frame(mac);
        if let Some((head, rest)) = Head::of_private(NetHeader::default(), &frame) {
            let origin = Origin {
                port: number,
                pair: 0,
                aside: &Aside::default(),
                limits: &port.limits,
                checked,
            };
            // Its limits count: a front-end may ask for this as often as it likes.
            if let Err(loss) = self.spread(origin, &head, &Rest::Private(rest)) {
                port.counters.drops.count(loss);
            }
        }
        if let Some(place) = self.ports.get_mut(usize::from(number)) {
            *place = Some(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use vhost::fault::Fault;

    use super::*;
    use crate::attach;

    #[test]
    fn a_new_port_is_not_blamed_for_what_the_one_before_it_did() {
        let mut switch = Switch::new();
        let add = |switch: &mut Switch| {
            let (_front_end, socket) = crate::control::ControlSocket::pair().unwrap();
            let kind = attach::guest(socket.into()).unwrap();
            assert!(switch.add(7, attach::port("vm".to_owned(), kind)));
        };
        add(&mut switch);
        switch.faults.push((7, Fault::Truncated));
        switch.faults.push((8, Fault::Truncated));
        assert!(switch.remove(7).is_some());
        add(&mut switch);
        let faults = std::iter::from_fn(|| switch.take_fault());
        assert_eq!(faults.map(|(port, _)| port).collect::<Vec<_>>(), [8]);
    }
}
