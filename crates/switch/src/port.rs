//! A port of a network: a VM's NIC or an uplink.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use vhost::fault::RingFault;
use vhost::ring::Ring;
use vhost::vring::Notifier;

use crate::control::{Counters, DropReason, Peer};
use crate::guard::{Guard, Limiter};
use crate::limits::MAX_QUEUE_PAIRS;
use crate::peers;
use crate::ring_state::RingState;
use crate::uplink::Uplink;

/// A VM's vhost-user device, with the switch's state of each ring.
pub type Backend = vhost::backend::Backend<RingState>;

/// A ring of such a device.
pub type Vring = vhost::vring::Vring<RingState>;

/// The kind of a port.
#[derive(Debug)]
pub enum Kind {
    /// A VM's NIC.
    Guest(Box<Guest>),
    /// An interface of the host.
    Uplink(Box<Uplink>),
}

/// A port of a network.
#[derive(Debug)]
pub struct Port {
    /// The name in log messages.
    pub name: String,
    /// A VM's NIC or an uplink.
    pub kind: Kind,
    /// Enforces the port's rules, if it has any.
    pub guard: Option<Box<Guard>>,
    /// Enforces the port's rate limits.
    pub limits: Limiter,
    /// The port is captured or mirrored.
    pub(crate) observed: bool,
}

impl Port {
    /// Creates a port without rules.
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

    /// Returns the running totals.
    #[must_use]
    pub fn counters(&mut self) -> Counters {
        match &mut self.kind {
            Kind::Guest(guest) => {
                guest
                    .ring_states_mut()
                    .fold(Counters::default(), |sum, ring_state| {
                        // A ring that never ran has zeroes.
                        sum.plus(&ring_state.counters)
                    })
            }
            Kind::Uplink(uplink) => uplink.counters(),
        }
    }

    /// Returns the totals sent to each other port, limited to the ports with the most bytes.
    #[must_use]
    pub fn peers(&mut self) -> Vec<Peer> {
        match &mut self.kind {
            Kind::Guest(guest) => {
                peers::sum(guest.ring_states_mut().map(|ring_state| &ring_state.peers))
            }
            Kind::Uplink(uplink) => uplink.peers(),
        }
    }

    /// Returns for how long the guest has posted no buffer for a frame that waits for it; zero if none waits.
    #[must_use]
    pub fn stuck_for(&self, now: Instant) -> Duration {
        match &self.kind {
            Kind::Guest(guest) => guest.stuck_for(now),
            Kind::Uplink(_) => Duration::ZERO,
        }
    }

    /// Counts dropped frames for this port, which came from this sender's pair.
    pub(crate) fn count_drops(&self, sender_pair: usize, reason: DropReason, count: usize) {
        let each = |counters: &mut Counters| (0..count).for_each(|_| counters.drops.count(reason));
        match &self.kind {
            Kind::Guest(guest) => {
                let number = receive_ring(guest.receiving_pair(sender_pair));
                if let Some(mut vring) = guest.backend.vring(number) {
                    each(&mut vring.state.counters);
                }
            }
            Kind::Uplink(uplink) => each(&mut uplink.queue(sender_pair).egress()),
        }
    }

    /// Returns the number of deferred frames that the port has sent.
    #[must_use]
    pub fn deferred_frames(&mut self) -> u64 {
        match &mut self.kind {
            Kind::Guest(guest) => {
                let ring_state = guest.ring_states_mut();
                ring_state
                    .map(|ring_state| ring_state.backlog.deferred.len() as u64)
                    .sum()
            }
            Kind::Uplink(_) => 0,
        }
    }

    /// Counts the deferred frames of a port that is gone as dropped.
    pub fn drop_deferred(&mut self) {
        if let Kind::Guest(guest) = &mut self.kind {
            for ring_state in guest.ring_states_mut() {
                ring_state.counters.drops.sender_gone += ring_state.backlog.deferred.len() as u64;
            }
        }
    }

    /// Clears the learn caches, so that the FDB learns the port's addresses again.
    pub fn clear_learn_caches(&mut self) {
        if let Kind::Guest(guest) = &mut self.kind {
            guest
                .ring_states_mut()
                .for_each(|ring_state| ring_state.learn_cache.clear());
        }
    }

    /// Drops the frames that are deferred for a receiver that is gone, and the counters for it.
    pub fn remove(&mut self, receiver: u16) {
        match &mut self.kind {
            Kind::Guest(guest) => {
                for ring_state in guest.ring_states_mut() {
                    ring_state.peers.remove(receiver);
                    let lost = ring_state.backlog.deferred.remove(receiver);
                    ring_state.counters.drops.receiver_down += lost as u64;
                }
            }
            Kind::Uplink(uplink) => uplink.remove(receiver),
        }
    }
}

/// A VM's NIC.
///
/// Everything except the rings changes only while the network is locked for writing.
#[derive(Debug)]
pub struct Guest {
    /// The vhost-user device.
    pub backend: Backend,
    /// For each pair of a sender: the pair whose receive ring takes its frames.
    steering: [usize; MAX_QUEUE_PAIRS],
    /// A running ring has no kick descriptor, so a worker must poll it.
    polled: bool,
    /// The supervisor knows that the rings run.
    pub announced: bool,
}

/// Returns the vhost-user number of a pair's receive ring.
#[must_use]
pub const fn receive_ring(pair: usize) -> usize {
    2 * pair
}

/// Returns the vhost-user number of a pair's transmit ring.
#[must_use]
pub const fn transmit_ring(pair: usize) -> usize {
    2 * pair + 1
}

impl Guest {
    /// Creates a NIC whose driver has not started.
    #[must_use]
    pub fn new(backend: Backend) -> Self {
        Self {
            backend,
            steering: Default::default(),
            polled: false,
            announced: false,
        }
    }

    /// Returns the states of all rings.
    pub(crate) fn ring_states_mut(&mut self) -> impl Iterator<Item = &mut RingState> {
        self.backend.vrings_mut().map(|vring| &mut vring.state)
    }

    /// Returns whether a ring carries traffic.
    fn is_active(&mut self, ring: usize) -> bool {
        let vring = self.backend.vring_mut(ring);
        vring.is_some_and(|vring| vring.active().is_some())
    }

    /// Returns whether both rings of the first pair carry traffic.
    #[must_use]
    pub fn is_running(&mut self) -> bool {
        [receive_ring(0), transmit_ring(0)]
            .iter()
            .all(|ring| self.is_active(*ring))
    }

    /// Returns whether a running ring has no kick descriptor, so that a worker must poll it.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        self.polled
    }

    /// Resets the states of the rings, and distributes senders' pairs over the running receive rings.
    /// Called after rings were started, stopped, enabled or disabled.
    pub fn rings_changed(&mut self) {
        self.ring_states_mut().for_each(RingState::ring_changed);
        let polled =
            |vring: &Vring| vring.active().is_some() && matches!(vring.kick(), Notifier::Polling);
        self.polled = self.backend.vrings_mut().any(|vring| polled(vring));
        let running: ArrayVec<usize, MAX_QUEUE_PAIRS> = (0..MAX_QUEUE_PAIRS)
            .filter(|pair| self.is_active(receive_ring(*pair)))
            .collect();
        // If none runs, frames are steered to the first ring, and are dropped because it is down.
        let steering = running.iter().copied().cycle().chain(std::iter::repeat(0));
        for (place, pair) in self.steering.iter_mut().zip(steering) {
            *place = pair;
        }
    }

    /// Returns the pair whose receive ring takes the frames of a sender's pair.
    #[inline]
    #[must_use]
    pub fn receiving_pair(&self, sender_pair: usize) -> usize {
        self.steering.get(sender_pair).copied().unwrap_or(0)
    }

    /// Returns for how long one of the receive rings has had the same buffers, which were too few for a frame.
    fn stuck_for(&self, now: Instant) -> Duration {
        let of_pair = |pair| {
            let vring = self.backend.vring(receive_ring(pair))?;
            let shortage = vring.state.shortage?;
            let count = vring.active()?.available().ok()?;
            let since = now.saturating_duration_since(shortage.since);
            (count == shortage.seen).then_some(since)
        };
        let all = (0..MAX_QUEUE_PAIRS).filter_map(of_pair);
        all.max().unwrap_or_default()
    }

    /// Returns whether a delivery that failed for lack of buffers should be retried: the ring has other
    /// buffers now, is stuck, or does not run.
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

/// Publishes the chains that were returned on a ring, and calls the driver if it wants a call.
///
/// # Errors
/// The call descriptor cannot be written to, or blocks.
#[inline]
pub fn publish(vring: &mut Vring) -> Result<(), RingFault> {
    if vring.running_mut().is_some_and(Ring::publish) {
        vring.state.counters.calls += 1;
        vring.call()?;
    }
    Ok(())
}
