//! Entries of the FDB and remote peers, as the data plane tells them.

use serde::{Deserialize, Serialize};

use crate::fdb::ListedEntry;
use crate::mac::Mac;

/// The most remote peers of one message.
pub(crate) const PEERS_PER_MESSAGE: usize = 80;

/// An entry of the FDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FdbEntry {
    /// The address.
    pub mac: Mac,
    /// The VLAN; 0 in networks without VLANs.
    pub vlan: u16,
    /// Number of the port to which the address leads.
    pub port: u16,
    /// The supervisor pinned it (a static entry).
    pub pinned: bool,
    /// Seconds for which it has led to this port.
    pub age: u32,
    /// Seconds since the address last sent a frame; 0 for a pinned entry.
    pub idle: u32,
}

impl From<ListedEntry> for FdbEntry {
    fn from(entry: ListedEntry) -> Self {
        Self {
            mac: entry.key.mac(),
            vlan: entry.key.vlan(),
            port: entry.port,
            pinned: entry.pinned,
            age: entry.age,
            idle: entry.idle,
        }
    }
}

/// Totals that a port and a MAC address behind an uplink have exchanged, since the address has had a counter: at most
/// since the port was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemotePeer {
    /// Number of the port.
    pub port: u16,
    /// The address.
    pub mac: Mac,
    /// The VLAN; 0 in networks without VLANs.
    pub vlan: u16,
    /// Frames and bytes that the port sent to the address.
    pub sent: [u64; 2],
    /// Frames and bytes that the port received from the address.
    pub received: [u64; 2],
}

impl RemotePeer {
    /// Returns the bytes of both directions.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let ([_, sent], [_, received]) = (self.sent, self.received);
        sent.saturating_add(received)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{Event, MAX_DATAGRAM};
    use crate::limits::FDB_ENTRIES_PER_MESSAGE;

    #[test]
    fn messages_with_the_greatest_numbers_fit() {
        let peer = RemotePeer {
            port: u16::MAX,
            mac: Mac::BROADCAST,
            vlan: u16::MAX,
            sent: [u64::MAX; 2],
            received: [u64::MAX; 2],
        };
        let entry = FdbEntry {
            mac: Mac::BROADCAST,
            vlan: u16::MAX,
            port: u16::MAX,
            pinned: false,
            age: u32::MAX,
            idle: u32::MAX,
        };
        for event in [
            Event::RemotePeers(vec![peer; PEERS_PER_MESSAGE]),
            Event::FdbEntries {
                entries: vec![entry; FDB_ENTRIES_PER_MESSAGE],
                next: Some(u32::MAX),
            },
        ] {
            assert!(serde_json::to_vec(&event).unwrap().len() <= MAX_DATAGRAM);
        }
    }
}
