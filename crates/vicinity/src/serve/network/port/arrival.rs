//! Front-ends that come: let in, kept waiting, or turned away.

use std::os::fd::AsFd;
use std::time::Duration;

use switch::control::Order;
use tokio::time::Instant;
use vhost::raw::Foreign;

use super::{Port, Serving, Way};
use crate::serve::connections::Arrival;
use crate::serve::network::quarantine::{CONNECTS, CONNECTS_WITHIN};
use crate::serve::process::plane::Orders;

/// Between two lines of the log on strangers at a port.
const STRANGERS: Duration = Duration::from_secs(10);

/// Before a socket on which a stranger listens is dialed again.
pub(super) const REDIAL_STRANGER: Duration = Duration::from_secs(1);

impl Port {
    /// A front-end is connected.
    pub(in crate::serve) fn arrive(&mut self, arrival: Arrival, now: Instant, orders: &mut Orders) {
        if let Err(why) = arrival.peer.check(&self.settings.owner) {
            // Nothing of it counts: it is not the owner's conduct.
            return self.turn_away_stranger(arrival, &why, now);
        }
        match self.serving {
            Serving::Nobody => self.admit(arrival, now, orders),
            // Who waits already stays.
            Serving::Somebody { .. } if self.waiting.is_some() => {
                tracing::debug!(port = %self.name, "two front-ends already: turned away");
            }
            Serving::Somebody { .. } => {
                tracing::warn!(
                    port = %self.name,
                    "another front-end waits for this port: it is let in when the first \
                     disconnects. Do two VMs use the same socket?"
                );
                self.waiting = Some(arrival);
            }
            Serving::Quarantine { .. } => {
                tracing::debug!(port = %self.name, "in quarantine: front-end turned away");
            }
        }
    }

    fn turn_away_stranger(&mut self, arrival: Arrival, why: &str, now: Instant) {
        if self
            .told
            .is_none_or(|told| now.duration_since(told) >= STRANGERS)
        {
            self.told = Some(now);
            tracing::warn!(
                port = %self.name,
                "a process that is not this port's owner was turned away: {why}. Is `owner` right?"
            );
        }
        if matches!(self.way, Way::Client { .. }) {
            self.reason = Some(format!("a process that is not the owner listens: {why}"));
            // It is dialed again, for its owner may listen there by then.
            let next = arrival.next;
            tokio::spawn(async move {
                tokio::time::sleep(REDIAL_STRANGER).await;
                drop(next);
            });
        }
    }

    pub(super) fn admit(&mut self, arrival: Arrival, now: Instant, orders: &mut Orders) {
        let Arrival { stream, next, .. } = arrival;
        if matches!(self.way, Way::Client { .. }) {
            self.redial = Some(next);
        }
        if !self.conduct.connects(now) {
            let within = CONNECTS_WITHIN.as_secs();
            let reason =
                format!("the front-end connects too often: over {CONNECTS} times in {within} s");
            self.quarantine(reason, now);
            return;
        }
        let order = Order::Attach {
            port: self.id,
            name: self.name.clone(),
        };
        let same = stream.as_fd().try_clone_to_owned();
        self.stream = same.map(Foreign::from).ok();
        orders.give(order, Some(stream.into_inner()));
        self.serving = Serving::Somebody { running: false };
        self.connections += 1;
        self.reason = None;
        tracing::info!(port = %self.name, "front-end connected");
    }

    /// Nobody can be let in now: the network is down. A front-end that connects to us tries again
    /// by itself; one that we connect to is dialed when the port is opened.
    pub(in crate::serve) fn turn_away(&mut self, arrival: Arrival) {
        tracing::debug!(port = %self.name, "network down: front-end turned away");
        if matches!(self.way, Way::Client { .. }) {
            self.redial = Some(arrival.next);
        }
    }
}
