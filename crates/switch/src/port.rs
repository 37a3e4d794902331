//! A port: a VM's NIC or an uplink.

use std::time::Instant;

use arrayvec::ArrayVec;
use vhost::backend::Backend;
use vhost::fault::RingFault;
use vhost::ring::Ring;
use vhost::vring::{Notifier, Vring};

use crate::control::Counters;
use crate::guard::{Guard, Limiter};
use crate::hold::Held;
use crate::limits::{HOLD, MAX_QUEUE_PAIRS};
use crate::residency::{Learnt, Residency, Resident};
use crate::uplink::Uplink;

/// What is behind a port.
#[derive(Debug)]
pub enum Kind {
    /// A VM's NIC.
    Guest(Box<Guest>),
    /// The way out.
    Uplink(Uplink),
}

/// A port of a network.
#[derive(Debug)]
pub struct Port {
    /// For log lines.
    pub name: String,
    /// Running totals.
    pub counters: Counters,
    /// What is behind it.
    pub kind: Kind,
    /// What it taught the residency table.
    pub teacher: Teacher,
    /// Its rules at work, if it has any.
    pub guard: Option<Box<Guard>>,
    /// How much it may send and receive.
    pub limits: Limiter,
}

impl Port {
    /// Frames it has sent that are set aside.
    #[must_use]
    pub fn set_aside(&self) -> u64 {
        match &self.kind {
            Kind::Guest(guest) => guest.held.iter().map(|held| held.aside.len() as u64).sum(),
            Kind::Uplink(_) => 0,
        }
    }

    /// Forget the frames set aside for a receiver; how many they were.
    pub fn forget_aside(&mut self, receiver: u16) -> u64 {
        match &mut self.kind {
            Kind::Guest(guest) => {
                let held = guest.held.iter_mut();
                held.map(|held| held.aside.forget(receiver) as u64).sum()
            }
            Kind::Uplink(_) => 0,
        }
    }
}

/// A port's dealings with the residency table.
#[derive(Debug)]
pub struct Teacher {
    /// The last address noted, and when: most frames repeat it.
    last: Option<(Resident, u32)>,
    /// Addresses it may teach.
    limit: u32,
}

impl Teacher {
    /// For a port that may teach so many addresses.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { last: None, limit }
    }

    /// Note the source of a frame. Returns the port an address has moved from.
    #[inline]
    pub fn note(
        &mut self,
        source: Resident,
        port: u16,
        now: u32,
        table: &mut Residency,
    ) -> Option<u16> {
        if self.last == Some((source, now)) {
            return None;
        }
        self.last = Some((source, now));
        match table.learn(source, port, now, self.limit) {
            Learnt::Moved(from) => Some(from),
            Learnt::New | Learnt::Known | Learnt::Refused => None,
        }
    }

    /// An address has moved away from here: note it again should it come back.
    pub fn forget_last(&mut self) {
        self.last = None;
    }
}

/// A VM's NIC.
#[derive(Debug)]
pub struct Guest {
    /// Its vhost-user device.
    pub backend: Backend,
    /// What each transmit ring holds back.
    pub held: [Held; MAX_QUEUE_PAIRS],
    /// The receive rings, by pair, that had too few buffers when last tried.
    short: [Option<Short>; MAX_QUEUE_PAIRS],
    /// For each pair of a sender: the pair whose receive ring its frames go to.
    steering: [usize; MAX_QUEUE_PAIRS],
    /// Its rings have been reported as running.
    pub announced: bool,
    /// Frames it has sent since the worker last slept.
    pub sent: u32,
    /// Its frames gather: the worker comes back by itself, without a kick.
    pub gathers: bool,
}

/// A receive ring found too short for a frame.
#[derive(Clone, Copy, Debug)]
pub struct Short {
    /// Since when it has taken nothing.
    pub since: Instant,
    /// How many chains it had, which were too few.
    pub seen: u16,
}

/// The vhost-user number of a pair's receive ring.
#[must_use]
pub const fn receive_ring(pair: usize) -> usize {
    2 * pair
}

/// The vhost-user number of a pair's transmit ring.
#[must_use]
pub const fn transmit_ring(pair: usize) -> usize {
    2 * pair + 1
}

impl Guest {
    /// A NIC whose driver has not started.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            held: Default::default(),
            short: Default::default(),
            steering: Default::default(),
            announced: false,
            sent: 0,
            gathers: false,
        }
    }

    /// Whether both rings of the first pair carry traffic.
    #[must_use]
    pub fn is_running(&self) -> bool {
        let vrings = self.backend.vrings();
        [receive_ring(0), transmit_ring(0)].iter().all(|ring| {
            vrings
                .get(*ring)
                .is_some_and(|vring| vring.active().is_some())
        })
    }

    /// Whether a ring that runs has no kick descriptor: it must be looked at unasked.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        let polled =
            |vring: &Vring| vring.active().is_some() && matches!(vring.kick(), Notifier::Polling);
        self.backend.vrings().iter().any(polled)
    }

    /// After rings have started, stopped, or been enabled or disabled: what was known of them is
    /// no more, and senders' pairs are spread over the receive rings that run now.
    pub fn rings_changed(&mut self) {
        self.short = Default::default();
        self.held.iter_mut().for_each(Held::forget_ring);
        let vrings = self.backend.vrings();
        let runs = |pair: &usize| {
            let vring = vrings.get(receive_ring(*pair));
            vring.and_then(Vring::active).is_some()
        };
        let running: ArrayVec<usize, MAX_QUEUE_PAIRS> = (0..MAX_QUEUE_PAIRS).filter(runs).collect();
        // Without any, frames find the first ring not running.
        let spread = running.iter().copied().cycle().chain(std::iter::repeat(0));
        for (place, pair) in self.steering.iter_mut().zip(spread) {
            *place = pair;
        }
    }

    /// The pair whose receive ring takes the frames of a sender's pair.
    #[inline]
    #[must_use]
    pub fn receiving_pair(&self, senders: usize) -> usize {
        self.steering.get(senders).copied().unwrap_or(0)
    }

    /// What is known of a pair's receive ring, if it was too short.
    #[must_use]
    pub fn short(&self, pair: usize) -> Option<Short> {
        self.short.get(pair).copied().flatten()
    }

    /// A pair's receive ring had room.
    #[inline]
    pub fn note_room(&mut self, pair: usize) {
        if let Some(short) = self.short.get_mut(pair) {
            *short = None;
        }
    }

    /// The receivers that frames wait for, and the pair they came by: those set aside, and those
    /// in transmit rings that run.
    pub fn waited_for(&self) -> impl Iterator<Item = (u16, usize)> + '_ {
        let runs = |pair| {
            let vring = self.backend.vrings().get(transmit_ring(pair));
            vring.and_then(Vring::active).is_some()
        };
        let held = self.held.iter().enumerate();
        held.flat_map(move |(pair, held)| held.receivers(runs(pair)).map(move |to| (to, pair)))
    }

    /// Whether a frame of a sender's pair that did not fit before may fit now, or is to be given
    /// up.
    #[must_use]
    pub fn worth_a_try(&self, senders: usize, now: Instant) -> bool {
        let pair = self.receiving_pair(senders);
        let Some(short) = self.short(pair) else {
            return true;
        };
        let vring = self.backend.vrings().get(receive_ring(pair));
        let ring = vring.and_then(Vring::active);
        short.is_stuck(now)
            || ring.is_none_or(|ring| ring.available().is_ok_and(|count| count != short.seen))
    }

    /// Remember that a pair's receive ring was too short.
    pub fn note_short(&mut self, pair: usize, seen: u16, now: Instant) -> Short {
        let since = self.short(pair).map_or(now, |short| short.since);
        let short = Short { since, seen };
        if let Some(place) = self.short.get_mut(pair) {
            *place = Some(short);
        }
        short
    }
}

impl Short {
    /// It has been short for longer than anybody waits.
    #[must_use]
    pub fn is_stuck(&self, now: Instant) -> bool {
        now.duration_since(self.since) > HOLD
    }
}

/// Publish what was handed back on a ring, and call the driver if it wants to be.
///
/// # Errors
/// The call descriptor is none.
#[inline]
pub fn publish(vring: &mut Vring, counters: &mut Counters) -> Result<(), RingFault> {
    if vring.running_mut().is_some_and(Ring::publish) {
        counters.calls += 1;
        vring.call()?;
    }
    Ok(())
}
