//! Front-ends that come: let in, kept waiting, or turned away.

use std::os::fd::AsFd;
use std::time::Duration;

use switch::control::Order;
use tokio::time::Instant;
use vhost::raw::Foreign;

use super::{Port, Service, Way};
use crate::serve::connections::Connection;
use crate::serve::network::quarantine::{CONNECTS, CONNECTS_WITHIN};
use crate::serve::process::handle::Orders;

/// Between two lines of the log on strangers at a port.
const STRANGERS: Duration = Duration::from_secs(10);

/// Before a socket on which a stranger listens is dialed again.
pub(super) const REDIAL_STRANGER: Duration = Duration::from_secs(1);

impl Port {
    /// A front-end is connected.
    pub(in crate::serve) fn connected(
        &mut self,
        connection: Connection,
        now: Instant,
        orders: &mut Orders,
    ) {
        if let Err(why) = connection.peer.check(&self.settings.owner) {
            // Nothing of it counts: it is not the owner's conduct.
            return self.reject_stranger(connection, &why, now);
        }
        match self.service {
            Service::Idle => self.admit(connection, now, orders),
            // Who waits already stays.
            Service::Attached { .. } if self.waiting.is_some() => {
                tracing::debug!(port = %self.name, "two front-ends already: turned away");
            }
            Service::Attached { .. } => {
                tracing::warn!(
                    port = %self.name,
                    "another front-end waits for this port: it is let in when the first \
                     disconnects. Do two VMs use the same socket?"
                );
                self.waiting = Some(connection);
            }
            Service::Quarantined { .. } => {
                tracing::debug!(port = %self.name, "in quarantine: front-end turned away");
            }
        }
    }

    fn reject_stranger(&mut self, connection: Connection, why: &str, now: Instant) {
        if self
            .last_warning
            .is_none_or(|last_warning| now.duration_since(last_warning) >= STRANGERS)
        {
            self.last_warning = Some(now);
            tracing::warn!(
                port = %self.name,
                "a process that is not this port's owner was turned away: {why}. Is `owner` right?"
            );
        }
        if matches!(self.way, Way::Client { .. }) {
            self.reason = Some(format!("a process that is not the owner listens: {why}"));
            // It is dialed again, for its owner may listen there by then.
            let next = connection.next;
            tokio::spawn(async move {
                tokio::time::sleep(REDIAL_STRANGER).await;
                drop(next);
            });
        }
    }

    pub(super) fn admit(&mut self, connection: Connection, now: Instant, orders: &mut Orders) {
        let Connection { stream, next, .. } = connection;
        if matches!(self.way, Way::Client { .. }) {
            self.redial = Some(next);
        }
        if !self.history.record(now) {
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
        orders.push(order, Some(stream.into_inner()));
        self.service = Service::Attached { running: false };
        self.connections += 1;
        self.reason = None;
        tracing::info!(port = %self.name, "front-end connected");
    }

    /// Nobody can be let in now: the network is down. A front-end that connects to us tries again
    /// by itself; one that we connect to is dialed when the port is opened.
    pub(in crate::serve) fn reject(&mut self, connection: Connection) {
        tracing::debug!(port = %self.name, "network down: front-end turned away");
        if matches!(self.way, Way::Client { .. }) {
            self.redial = Some(connection.next);
        }
    }
}
