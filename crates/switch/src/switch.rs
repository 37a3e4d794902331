//! Forwarding: from a transmit ring, through the residency table, into receive rings.
//!
//! A frame takes these steps, in bursts of up to [`BURST`](crate::limits::BURST):
//! 1. look at the chains of a transmit ring ([`Ring::collect`](vhost::ring::Ring::collect));
//! 2. read and check each one's head, note its source, look up its destination;
//! 3. deliver runs of frames with the same destination into that port's receive ring, one copy
//!    each; hold back what finds no room, flood what has no known destination;
//! 4. hand the chains back, publish both rings, call whom it concerns.
//!
//! A frame never comes back to the port it came from. A fault of the sender ends the sender, a
//! fault of a receiver the receiver.
//!
//! Several workers forward at the same time, each with a [`WorkerContext`] of its own, and share the switch
//! (`&Switch`). What they change lies behind locks:
//! - a transmit ring's, with its [state](crate::ring_state), taken by the one worker that reads it and
//!   by nobody else, for a burst;
//! - a receive ring's, with its books, for a run of frames: the last lock that anybody takes, so
//!   nobody ever waits in a circle;
//! - the residency table's, see there.
//!
//! What changes a port as such (messages, orders, faults) needs the whole switch (`&mut Switch`):
//! then nobody forwards, and no memory is unmapped that somebody looks at.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vhost::fault::Fault;
use vhost::net_header::NetHeader;

use crate::capture::Capture;
use crate::context::WorkerContext;
use crate::control::Loss;
use crate::deferred::Deferred;
use crate::fdb::{Fdb, FdbKey};
use crate::frame::{Head, Rest};
use crate::guard::groups::Groups;
use crate::guard::{Checked, Guard, Limiter, Rules};
use crate::limits::{GATHER, MAX_LEARNT_PER_PORT, MAX_PORTS, SWEEP};
use crate::mac::Mac;
use crate::multicast::Origin;
use crate::port::{Kind, Port};
use crate::steering::Steering;
use crate::sync::{AtomicBool, Mutex, RwLock};

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
    pub table: Fdb,
    /// Who reads which ring.
    pub(crate) steering: Steering,
    /// Seconds since the start, when the network was last changed.
    pub seconds: u32,
    /// How long the frames of a stream may gather; zero for never.
    pub(crate) gather: Duration,
    /// Each frame's destination is looked up so many times; else once for frames in a row with the
    /// same one.
    pub(crate) look_ups: Option<NonZeroU32>,
    /// Ports to be ended, and why.
    faults: Mutex<Vec<(u16, Fault)>>,
    /// There may be some.
    faulty: AtomicBool,
    /// Rules by port number, of ports to come too.
    rules: BTreeMap<u16, Rules>,
    /// Frames of multicast groups go to those who asked for them.
    pub snooping: bool,
    pub(crate) groups: RwLock<Groups>,
    /// Who watches a port, by its number, of ports to come too.
    pub(crate) captures: BTreeMap<u16, Vec<Capture>>,
    /// The ports that a port's frames are copied to, by its number, of ports to come too.
    pub(crate) mirrors: BTreeMap<u16, Vec<u16>>,
}

impl Default for Switch {
    fn default() -> Self {
        Self::new(Steering::new(1))
    }
}

impl Switch {
    /// A network without ports.
    #[must_use]
    pub fn new(steering: Steering) -> Self {
        Self {
            ports: Vec::with_capacity(MAX_PORTS),
            table: Fdb::new(),
            steering,
            seconds: 0,
            gather: GATHER,
            look_ups: None,
            faults: Mutex::new(Vec::with_capacity(MAX_PORTS)),
            faulty: AtomicBool::new(false),
            rules: BTreeMap::new(),
            snooping: false,
            groups: RwLock::default(),
            captures: BTreeMap::new(),
            mirrors: BTreeMap::new(),
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
        port.observed = self.is_observed(number);
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
                self.note_new_vm(number);
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
        self.faults_mut().retain(|(at, _)| *at != number);
        for other in self.ports.iter_mut().flatten() {
            other.forget(number);
        }
        port.drop_deferred();
        Some(port)
    }

    /// What a port may send and receive from now on.
    pub fn set_rules(&mut self, number: u16, rules: Rules) {
        if let Some(port) = self.port_mut(number) {
            port.guard = Guard::new(&rules);
            port.limits = Limiter::new(&rules.limits);
            port.clear_learn_caches();
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

    /// Blame ports: they are to be ended.
    #[cold]
    pub(crate) fn blame(&self, faults: &mut Vec<(u16, Fault)>) {
        let all = self.faults.lock();
        all.unwrap_or_else(PoisonError::into_inner).append(faults);
        self.faulty.store(true, Ordering::Release);
    }

    /// Whether ports were found at fault.
    #[inline]
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::Acquire)
    }

    fn faults_mut(&mut self) -> &mut Vec<(u16, Fault)> {
        let all = self.faults.get_mut();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    /// A port found at fault since the last call, and why.
    pub fn take_fault(&mut self) -> Option<(u16, Fault)> {
        let fault = self.faults_mut().pop();
        if fault.is_none() {
            self.faulty.store(false, Ordering::Relaxed);
        }
        fault
    }

    /// Move what a port has to send by the rings that this worker reads, up to one burst a ring.
    pub fn serve(&self, context: &mut WorkerContext, number: u16) -> Visit {
        let Some(port) = self.port(number) else {
            return Visit::default();
        };
        let visit = match &port.kind {
            Kind::Guest(guest) => self.serve_guest(context, number, port, guest),
            Kind::Uplink(uplink) => self.serve_uplink(context, number, port, uplink),
        };
        let visit = visit.unwrap_or_else(|fault| {
            context.faults.push((number, fault));
            Visit::default()
        });
        if !context.faults.is_empty() {
            self.blame(&mut context.faults);
        }
        visit
    }

    /// Count a kick that a worker has heard, if the ring is one of its pairs.
    pub(crate) fn count_kick(&self, worker: usize, number: u16, ring: usize) {
        if self.steering.worker(number, ring / 2) != worker {
            return;
        }
        if let Some(Kind::Guest(guest)) = self.port(number).map(|port| &port.kind) {
            if let Some(mut vring) = guest.backend.vring(ring) {
                vring.state.counters.kicks += 1;
            }
        }
    }

    /// Forget addresses and groups not heard of for long, a few at a time.
    pub fn age(&self, now: u32) {
        self.table.age(now);
        self.log_duplicates();
        if now % SWEEP == 0 {
            let groups = self.groups.write();
            groups.unwrap_or_else(PoisonError::into_inner).sweep(now);
        }
    }

    /// A VM has come to a port: it may be in multicast groups that nobody here has heard of.
    pub(crate) fn note_new_vm(&mut self, number: u16) {
        let now = self.seconds;
        self.groups_mut().note_new_vm(number, now);
    }

    /// Announce a VM on its behalf, after a migration (vhost-user, `SEND_RARP`). The front-end chooses the
    /// address, so the port's rules hold for it as for a frame.
    pub fn announce(&mut self, context: &mut WorkerContext, number: u16, mac: Mac) {
        self.note_new_vm(number);
        let Some(port) = self.port(number) else {
            return;
        };
        let checked = match &port.guard {
            // A group is no station.
            _ if mac.is_group() => Err(Loss::MacSpoofed),
            Some(guard) => guard.announcement(mac),
            None => Ok(Checked::default()),
        };
        let checked = match checked {
            Ok(checked) => checked,
            Err(loss) => return port.lose(0, loss, 1),
        };
        let key = FdbKey::new(mac, checked.tci.vlan());
        self.table
            .learn(key, number, context.seconds, MAX_LEARNT_PER_PORT);
        let frame = crate::rarp::frame(mac);
        if let Some((head, rest)) = Head::of_private(NetHeader::default(), &frame) {
            let origin = Origin {
                port: number,
                pair: 0,
                deferred: &Deferred::default(),
                limits: &port.limits,
                checked,
            };
            // Its limits count: a front-end may ask for this as often as it likes.
            if let Err(loss) = self.flood(context, origin, &head, &Rest::Private(rest)) {
                port.lose(0, loss, 1);
            }
        }
        self.blame(&mut context.faults);
    }
}

#[cfg(test)]
mod tests {
    use vhost::fault::Fault;

    use super::*;
    use crate::attach;

    #[test]
    fn groups_that_nobody_reports_any_more_are_forgotten_in_time() {
        use front_end::membership::igmp_report;

        use crate::guard::membership::{Family, read};
        use crate::limits::MEMBERSHIP;

        let mut switch = Switch::default();
        let to = Mac::from_octets([1, 0, 0x5e, 1, 2, 3]);
        let report = igmp_report(true, [239, 1, 2, 3]);
        let message = read(Family::V4, &report);
        switch
            .groups_mut()
            .handle_message(message, Family::V4, (0, to), 1, 0);
        let mut after = |seconds| {
            (0..=seconds).for_each(|now| switch.age(now));
            switch.groups_mut().memberships()
        };
        assert_eq!(after(MEMBERSHIP), 1);
        assert_eq!(after(MEMBERSHIP + SWEEP), 0);
    }

    #[test]
    fn a_new_port_is_not_blamed_for_what_the_one_before_it_did() {
        let mut switch = Switch::default();
        let add = |switch: &mut Switch| {
            let (_front_end, socket) = crate::control::ControlSocket::pair().unwrap();
            let kind = attach::guest(socket.into()).unwrap();
            assert!(switch.add(7, Port::new("vm".to_owned(), kind)));
        };
        add(&mut switch);
        switch.blame(&mut vec![(7, Fault::Truncated), (8, Fault::Truncated)]);
        assert!(switch.is_faulty());
        assert!(switch.remove(7).is_some());
        add(&mut switch);
        let faults = std::iter::from_fn(|| switch.take_fault());
        assert_eq!(faults.map(|(port, _)| port).collect::<Vec<_>>(), [8]);
        assert!(!switch.is_faulty());
    }
}
