//! Front-ends that connect: the port accepts them, lets them wait, or rejects them.

use std::os::fd::AsFd;
use std::time::Duration;

use switch::control::Order;
use tokio::time::Instant;
use vhost::raw::ForeignFd;

use super::{Port, PortKind, Service};
use crate::serve::connections::Connection;
use crate::serve::network::quarantine::{CONNECTS, CONNECTS_WITHIN};
use crate::serve::process::handle::Orders;

/// Time between two log lines about processes that may not connect to a port.
const WARNING_PERIOD: Duration = Duration::from_secs(10);

/// Time after which the supervisor connects again to a socket on which a process listens that is not the owner's.
pub(super) const REDIAL_AFTER_REJECT: Duration = Duration::from_secs(1);

impl Port {
    /// Handles a connection of a front-end.
    pub(in crate::serve) fn connected(
        &mut self,
        connection: Connection,
        now: Instant,
        orders: &mut Orders,
    ) {
        if let Err(why) = connection.peer.check(&self.settings.owner) {
            // The connection does not count towards a quarantine: the owner did not make it.
            return self.reject_foreign(connection, &why, now);
        }
        match self.service {
            Service::Idle => self.admit(connection, now, orders),
            // The front-end that waits already keeps its place.
            Service::Attached { .. } if self.waiting.is_some() => {
                tracing::debug!(port = %self.name, "rejected a front-end: the port already has one, and another \
                    waits");
            }
            Service::Attached { .. } => {
                tracing::warn!(
                    port = %self.name,
                    "another front-end waits for this port until the first disconnects; check whether two VMs \
                        use the same socket"
                );
                self.waiting = Some(connection);
            }
            Service::Quarantined { .. } => {
                tracing::debug!(port = %self.name, "rejected a front-end: the port is in quarantine");
            }
        }
    }

    fn reject_foreign(&mut self, connection: Connection, why: &str, now: Instant) {
        if self
            .last_warning
            .is_none_or(|last_warning| now.duration_since(last_warning) >= WARNING_PERIOD)
        {
            self.last_warning = Some(now);
            tracing::warn!(
                port = %self.name,
                "refused a process that is not this port's owner: {why}; check `owner`, `owner-label` and \
                    `owner-cgroup` of the port"
            );
        }
        if matches!(self.kind, PortKind::Client { .. }) {
            self.reason = Some(format!(
                "the process that listens on the socket is not the owner: {why}"
            ));
            // The supervisor connects again later, because the owner may listen there by then.
            let next = connection.next;
            tokio::spawn(async move {
                tokio::time::sleep(REDIAL_AFTER_REJECT).await;
                drop(next);
            });
        }
    }

    pub(super) fn admit(&mut self, connection: Connection, now: Instant, orders: &mut Orders) {
        let Connection { stream, next, .. } = connection;
        if matches!(self.kind, PortKind::Client { .. }) {
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
        self.stream = same.map(ForeignFd::from).ok();
        orders.push(order, Some(stream.into_inner()));
        self.service = Service::Attached { running: false };
        self.connections += 1;
        self.reason = None;
        tracing::info!(port = %self.name, "a front-end connected");
    }

    /// Rejects a front-end because the network is down. A front-end that connects to the supervisor tries again by
    /// itself; in client mode the supervisor connects again when the port opens.
    pub(in crate::serve) fn reject(&mut self, connection: Connection) {
        tracing::debug!(port = %self.name, "rejected a front-end: the network is down");
        if matches!(self.kind, PortKind::Client { .. }) {
            self.redial = Some(connection.next);
        }
    }
}
