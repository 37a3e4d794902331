//! What happened to a guest's packets, for the status and the metrics.

use serde::{Deserialize, Serialize};

/// The figures of one guest. All but `attached` and `connections` are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// A front-end is connected.
    pub attached: bool,
    /// Connections that the guest has now.
    pub connections: u64,
    /// Connections that began, in either direction.
    pub begun: u64,
    /// Packets that the guest sent.
    pub sent_packets: u64,
    /// Payload bytes that it sent.
    pub sent_bytes: u64,
    /// Payload bytes that were copied into its receive buffers.
    pub received_bytes: u64,
    /// Packets that broke the specification.
    pub invalid: u64,
    /// Connection requests that the configuration does not allow.
    pub not_allowed: u64,
    /// Connection requests beyond the number of connections that the guest may initiate.
    pub too_many: u64,
    /// Packets of connections that do not exist.
    pub no_connection: u64,
    /// Packets that were copied out of its transmit ring, because their receiver had no buffers.
    pub deferred: u64,
    /// Connections that were reset because their receiver had no buffers for too long.
    pub stuck: u64,
}

/// Increments a counter.
pub(crate) fn increment(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}

impl Figures {
    /// Returns these figures with the totals of processes before this one.
    #[must_use]
    pub fn and_before(&self, before: &Self) -> Self {
        let sum = |one: u64, other: u64| one.wrapping_add(other);
        Self {
            attached: self.attached,
            connections: self.connections,
            begun: sum(self.begun, before.begun),
            sent_packets: sum(self.sent_packets, before.sent_packets),
            sent_bytes: sum(self.sent_bytes, before.sent_bytes),
            received_bytes: sum(self.received_bytes, before.received_bytes),
            invalid: sum(self.invalid, before.invalid),
            not_allowed: sum(self.not_allowed, before.not_allowed),
            too_many: sum(self.too_many, before.too_many),
            no_connection: sum(self.no_connection, before.no_connection),
            deferred: sum(self.deferred, before.deferred),
            stuck: sum(self.stuck, before.stuck),
        }
    }
}
