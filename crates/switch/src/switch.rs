//! Forwards frames from transmit rings to receive rings, by the FDB.
//!
//! A worker forwards frames in bursts of up to [`BURST`](crate::limits::BURST), in these steps:
//! 1. It reads chains of a transmit ring ([`Ring::collect`](vhost::ring::Ring::collect)).
//! 2. It reads and checks the head of each frame, learns the source address and looks the destination up.
//! 3. It delivers runs of frames with the same destination to that port's receive ring, with one copy of
//!    each frame. It holds back frames without room, and floods frames with an unknown destination.
//! 4. It returns the chains, publishes both rings, and calls the drivers that want a call.
//!
//! The switch never returns a frame to the port that sent it. A fault of the sender ends the sender's port;
//! a fault of a receiver ends the receiver's.
//!
//! Several workers forward at the same time and share the switch (`&Switch`); each has its own
//! [`WorkerContext`]. Locks protect the data that they change:
//! - the lock of a transmit ring and its [state](crate::ring_state): only the worker that reads the ring
//!   takes it, for one burst;
//! - the lock of a receive ring and its state: a worker takes it for a run of frames, always as the last
//!   lock, so there are no deadlocks;
//! - the lock of the FDB, see there.
//!
//! Changes to ports (messages, orders, faults) need exclusive access (`&mut Switch`): then no worker
//! forwards, so memory can be unmapped safely.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use vhost::fault::Fault;

use crate::capture::Capture;
use crate::context::WorkerContext;
use crate::fdb::Fdb;
use crate::guard::groups::Groups;
use crate::guard::{Guard, Limiter, Rules};
use crate::limits::{MAX_PORTS, MODERATION_DELAY, SWEEP};
use crate::port::{Kind, Port};
use crate::steering::Steering;
use crate::sync::{AtomicBool, Mutex, RwLock};

/// The result of serving a port once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Frames that the worker took from the port, delivered or dropped.
    pub moved: u32,
    /// The port has more frames to send.
    pub more: bool,
}

/// A network: its ports and its FDB.
#[derive(Debug)]
pub struct Switch {
    pub(crate) ports: Vec<Option<Box<Port>>>,
    /// The forwarding database.
    pub table: Fdb,
    /// Which worker reads which ring.
    pub(crate) steering: Steering,
    /// Seconds since the network started, at its last change.
    pub seconds: u32,
    /// How long the frames of a stream may gather; zero disables gathering.
    pub(crate) moderation_delay: Duration,
    /// Look-ups of each frame's destination (a measuring aid). If `None`, consecutive frames with the
    /// same destination share one look-up.
    pub(crate) look_ups: Option<NonZeroU32>,
    /// Ports to end, and their faults.
    faults: Mutex<Vec<(u16, Fault)>>,
    /// `faults` may have entries.
    faulty: AtomicBool,
    /// Rules by port number, also of ports that are not attached.
    rules: BTreeMap<u16, Rules>,
    /// IGMP and MLD snooping: frames of a multicast group go to its members only.
    pub snooping: bool,
    pub(crate) groups: RwLock<Groups>,
    /// Captures by port number, also of ports that are not attached.
    pub(crate) captures: BTreeMap<u16, Vec<Capture>>,
    /// Mirror ports by number of the mirrored port, also of ports that are not attached.
    pub(crate) mirrors: BTreeMap<u16, Vec<u16>>,
}

impl Default for Switch {
    fn default() -> Self {
        Self::new(Steering::new(1))
    }
}

impl Switch {
    /// Creates a network without ports.
    #[must_use]
    pub fn new(steering: Steering) -> Self {
        Self {
            ports: Vec::with_capacity(MAX_PORTS),
            table: Fdb::new(),
            steering,
            seconds: 0,
            moderation_delay: MODERATION_DELAY,
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

    /// Returns the port with this number.
    #[must_use]
    pub fn port(&self, number: u16) -> Option<&Port> {
        self.ports.get(usize::from(number))?.as_deref()
    }

    /// Returns the port with this number.
    pub fn port_mut(&mut self, number: u16) -> Option<&mut Port> {
        self.ports.get_mut(usize::from(number))?.as_deref_mut()
    }

    /// Returns all ports and their numbers.
    pub fn ports(&self) -> impl Iterator<Item = (u16, &Port)> {
        (0_u16..)
            .zip(&self.ports)
            .filter_map(|(number, port)| Some((number, port.as_deref()?)))
    }

    /// Returns all ports and their numbers.
    pub(crate) fn ports_mut(&mut self) -> impl Iterator<Item = (u16, &mut Port)> {
        (0_u16..)
            .zip(&mut self.ports)
            .filter_map(|(number, port)| Some((number, port.as_deref_mut()?)))
    }

    /// Adds a port; returns false when the number is in use or above the highest one.
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

    /// Removes a port, its FDB entries, the frames that other ports deferred for it, and its faults: the
    /// next port with this number may be another VM's. Drops the frames that the port had deferred itself.
    pub fn remove(&mut self, number: u16) -> Option<Box<Port>> {
        let mut port = self.ports.get_mut(usize::from(number))?.take()?;
        self.table.remove_port(number);
        self.groups_mut().remove(number);
        self.faults_mut().retain(|(at, _)| *at != number);
        for other in self.ports.iter_mut().flatten() {
            other.remove(number);
        }
        port.drop_deferred();
        Some(port)
    }

    /// Sets the rules of a port.
    pub fn set_rules(&mut self, number: u16, rules: Rules) {
        if let Some(port) = self.port_mut(number) {
            port.guard = Guard::new(&rules);
            port.limits = Limiter::new(&rules.limits);
            port.clear_learn_caches();
        }
        // Learnt addresses may be in a VLAN that the port has left.
        self.table.remove_port(number);
        let uplink = self
            .port(number)
            .map(|port| matches!(port.kind, Kind::Uplink(_)));
        let router = uplink == Some(true) || rules.multicast_router;
        let groups = self.groups_mut();
        groups.remove(number);
        groups.set_router(number, router);
        self.rules.insert(number, rules);
    }

    /// Adds faults; the first worker will end these ports.
    #[cold]
    pub(crate) fn report_faults(&self, faults: &mut Vec<(u16, Fault)>) {
        let all = self.faults.lock();
        all.unwrap_or_else(PoisonError::into_inner).append(faults);
        self.faulty.store(true, Ordering::Release);
    }

    /// Returns whether there may be ports at fault.
    #[inline]
    #[must_use]
    pub fn is_faulty(&self) -> bool {
        self.faulty.load(Ordering::Acquire)
    }

    fn faults_mut(&mut self) -> &mut Vec<(u16, Fault)> {
        let all = self.faults.get_mut();
        all.unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next fault and the number of its port.
    pub fn take_fault(&mut self) -> Option<(u16, Fault)> {
        let fault = self.faults_mut().pop();
        if fault.is_none() {
            self.faulty.store(false, Ordering::Relaxed);
        }
        fault
    }

    /// Forwards frames of a port from the rings that this worker reads, up to one burst a ring.
    pub fn serve(&self, context: &mut WorkerContext, number: u16) -> Served {
        let Some(port) = self.port(number) else {
            return Served::default();
        };
        let served = match &port.kind {
            Kind::Guest(guest) => self.serve_guest(context, number, port, guest),
            Kind::Uplink(uplink) => self.serve_uplink(context, number, port, uplink),
        };
        let served = served.unwrap_or_else(|fault| {
            context.faults.push((number, fault));
            Served::default()
        });
        if !context.faults.is_empty() {
            self.report_faults(&mut context.faults);
        }
        served
    }

    /// Counts a kick that a worker has received, if this worker reads the ring's pair.
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

    /// Removes aged FDB entries and expired group memberships, a few at a time.
    pub fn age(&self, now: u32) {
        self.table.age(now);
        self.log_duplicates();
        if now % SWEEP == 0 {
            let groups = self.groups.write();
            groups.unwrap_or_else(PoisonError::into_inner).sweep(now);
        }
    }

    /// Records that a new VM uses a port: it may be in multicast groups that it has not reported here.
    pub(crate) fn note_new_vm(&mut self, number: u16) {
        let now = self.seconds;
        self.groups_mut().note_new_vm(number, now);
    }
}

#[cfg(test)]
mod tests {
    use vhost::fault::Fault;

    use super::*;
    use crate::attach;

    #[test]
    fn memberships_without_reports_expire() {
        use front_end::membership::igmp_report;

        use crate::guard::membership::{Family, read};
        use crate::limits::MEMBERSHIP;
        use crate::mac::Mac;

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
    fn a_new_port_does_not_inherit_the_faults_of_the_previous_one() {
        let mut switch = Switch::default();
        let add = |switch: &mut Switch| {
            let (_front_end, socket) = crate::control::ControlSocket::pair().unwrap();
            let kind = attach::guest(socket.into()).unwrap();
            assert!(switch.add(7, Port::new("vm".to_owned(), kind)));
        };
        add(&mut switch);
        switch.report_faults(&mut vec![(7, Fault::Truncated), (8, Fault::Truncated)]);
        assert!(switch.is_faulty());
        assert!(switch.remove(7).is_some());
        add(&mut switch);
        let faults = std::iter::from_fn(|| switch.take_fault());
        assert_eq!(faults.map(|(port, _)| port).collect::<Vec<_>>(), [8]);
        assert!(!switch.is_faulty());
    }
}
