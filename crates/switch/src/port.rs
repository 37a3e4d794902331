//! A port: a VM's NIC or an uplink.

use std::time::Instant;

use arrayvec::ArrayVec;
use vhost::fault::RingFault;
use vhost::ring::Ring;
use vhost::vring::Notifier;

use crate::control::{Counters, Loss, Peer};
use crate::guard::{Guard, Limiter};
use crate::limits::MAX_QUEUE_PAIRS;
use crate::peers;
use crate::ring_state::RingState;
use crate::uplink::Uplink;

/// A VM's vhost-user device, with books beside each ring.
pub type Backend = vhost::backend::Backend<RingState>;

/// One of its rings.
pub type Vring = vhost::vring::Vring<RingState>;

/// What is behind a port.
#[derive(Debug)]
pub enum Kind {
    /// A VM's NIC.
    Guest(Box<Guest>),
    /// The way out.
    Uplink(Box<Uplink>),
}

/// A port of a network.
#[derive(Debug)]
pub struct Port {
    /// For log lines.
    pub name: String,
    /// What is behind it.
    pub kind: Kind,
    /// Its rules at work, if it has any.
    pub guard: Option<Box<Guard>>,
    /// How much it may send and receive.
    pub limits: Limiter,
    /// Its frames are shown to somebody, or mirrored.
    pub(crate) observed: bool,
}

impl Port {
    /// A port without rules.
    #[must_use]
    pub fn new(name: String, kind: Kind) -> Self {
        Self {
            name,
            kind,
            guard: None,
            limits: Limiter::default(),
            observed: false,
        }
    }

    /// Running totals.
    #[must_use]
    pub fn counters(&mut self) -> Counters {
        match &mut self.kind {
            Kind::Guest(guest) => guest
                .books_mut()
                .fold(Counters::default(), |sum, ring_state| {
                    // A ring that never ran has nothing.
                    sum.plus(&ring_state.counters)
                }),
            Kind::Uplink(uplink) => uplink.counters(),
        }
    }

    /// What it sent to each other port; of many, to the ones that got most.
    #[must_use]
    pub fn peers(&mut self) -> Vec<Peer> {
        match &mut self.kind {
            Kind::Guest(guest) => peers::sum(guest.books_mut().map(|ring_state| &ring_state.peers)),
            Kind::Uplink(uplink) => uplink.peers(),
        }
    }

    /// Count frames for this port, which came by a sender's pair, that are lost.
    pub(crate) fn lose(&self, sender_pair: usize, loss: Loss, count: usize) {
        let each = |counters: &mut Counters| (0..count).for_each(|_| counters.drops.count(loss));
        match &self.kind {
            Kind::Guest(guest) => {
                let number = receive_ring(guest.receiving_pair(sender_pair));
                if let Some(mut vring) = guest.backend.vring(number) {
                    each(&mut vring.state.counters);
                }
            }
            Kind::Uplink(uplink) => each(&mut uplink.queue(sender_pair).sent_out()),
        }
    }

    /// Frames it has sent that are set aside.
    #[must_use]
    pub fn deferred_frames(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Guest(guest) => {
                let ring_state = guest.books_mut();
                ring_state
                    .map(|ring_state| ring_state.backlog.deferred.len() as u64)
                    .sum()
            }
            Kind::Uplink(_) => 0,
        }
    }

    /// Lose the frames it has set aside: it is gone.
    pub fn drop_deferred(&mut self) {
        if let Kind::Guest(guest) = &mut self.kind {
            for ring_state in guest.books_mut() {
                ring_state.counters.drops.sender_gone += ring_state.backlog.deferred.len() as u64;
            }
        }
    }

    /// Have it teach the residency table anew what it has taught this second.
    pub fn clear_learn_caches(&mut self) {
        if let Kind::Guest(guest) = &mut self.kind {
            guest
                .books_mut()
                .for_each(|ring_state| ring_state.learn_cache.forget());
        }
    }

    /// A receiver is gone: lose the frames set aside for it, and what was counted for it.
    pub fn forget(&mut self, receiver: u16) {
        match &mut self.kind {
            Kind::Guest(guest) => {
                for ring_state in guest.books_mut() {
                    ring_state.peers.forget(receiver);
                    let lost = ring_state.backlog.deferred.forget(receiver);
                    ring_state.counters.drops.receiver_down += lost as u64;
                }
            }
            Kind::Uplink(uplink) => uplink.forget(receiver),
        }
    }
}

/// A VM's NIC.
///
/// All but the rings changes only when the network is locked for writing.
#[derive(Debug)]
pub struct Guest {
    /// Its vhost-user device.
    pub backend: Backend,
    /// For each pair of a sender: the pair whose receive ring its frames go to.
    steering: [usize; MAX_QUEUE_PAIRS],
    /// A ring that runs has no kick descriptor: it must be looked at unasked.
    polled: bool,
    /// Its rings have been reported as running.
    pub announced: bool,
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
            steering: Default::default(),
            polled: false,
            announced: false,
        }
    }

    /// The books of all rings.
    fn books_mut(&mut self) -> impl Iterator<Item = &mut RingState> {
        self.backend.vrings_mut().map(|vring| &mut vring.state)
    }

    /// Whether a ring carries traffic.
    fn is_active(&mut self, ring: usize) -> bool {
        let vring = self.backend.vring_mut(ring);
        vring.is_some_and(|vring| vring.active().is_some())
    }

    /// Whether both rings of the first pair carry traffic.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        [receive_ring(0), transmit_ring(0)]
            .iter()
            .all(|ring| self.is_active(*ring))
    }

    /// Whether a ring that runs has no kick descriptor: it must be looked at unasked.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.polled
    }

    /// After rings have started, stopped, or been enabled or disabled: what was known of them is
    /// no more, and sender_pair' pairs are spread over the receive rings that run now.
    pub fn rings_changed(&mut self) {
        self.books_mut().for_each(RingState::ring_changed);
        let polled =
            |vring: &Vring| vring.active().is_some() && matches!(vring.kick(), Notifier::Polling);
        self.polled = self.backend.vrings_mut().any(|vring| polled(vring));
        let running: ArrayVec<usize, MAX_QUEUE_PAIRS> = (0..MAX_QUEUE_PAIRS)
            .filter(|pair| self.is_active(receive_ring(*pair)))
            .collect();
        // Without any, frames find the first ring not running.
        let steering = running.iter().copied().cycle().chain(std::iter::repeat(0));
        for (place, pair) in self.steering.iter_mut().zip(steering) {
            *place = pair;
        }
    }

    /// The pair whose receive ring takes the frames of a sender's pair.
    #[inline]
    #[must_use]
    pub fn receiving_pair(&self, sender_pair: usize) -> usize {
        self.steering.get(sender_pair).copied().unwrap_or(0)
    }

    /// Whether a frame of a sender's pair that did not fit before may fit now, or is to be given
    /// up.
    #[must_use]
    pub fn should_retry(&self, sender_pair: usize, now: Instant) -> bool {
        let number = receive_ring(self.receiving_pair(sender_pair));
        let Some(vring) = self.backend.vring(number) else {
            return true;
        };
        let Some(shortage) = vring.state.shortage else {
            return true;
        };
        shortage.is_stuck(now)
            || vring
                .active()
                .is_none_or(|ring| ring.available().is_ok_and(|count| count != shortage.seen))
    }
}

/// Publish what was handed back on a ring, and call the driver if it wants to be.
///
/// # Errors
/// The call descriptor is none.
#[inline]
pub fn publish(vring: &mut Vring) -> Result<(), RingFault> {
    if vring.running_mut().is_some_and(Ring::publish) {
        vring.state.counters.calls += 1;
        vring.call()?;
    }
    Ok(())
}
