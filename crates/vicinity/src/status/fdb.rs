//! Entries of an FDB.

use serde::{Deserialize, Serialize};
use switch::mac::Mac;

use super::Kind;

/// An entry of a network's FDB, as `GET /v1/networks/{network}/fdb` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FdbEntryStatus {
    /// The address.
    pub(crate) mac: Mac,
    /// The VLAN; 0 in a network without VLANs.
    pub(crate) vlan: u16,
    /// The VM of the port to which the address leads; the tap of an uplink.
    pub(crate) vm: String,
    /// Whether the port leads to a VM or to other hosts.
    pub(crate) kind: Kind,
    /// Whether the configuration makes the entry, or the switch learnt it from a frame.
    pub(crate) origin: FdbOrigin,
    /// Since when the address has led to this port, in seconds since 1970. After a restart of the data plane it is the
    /// time of the restart or later.
    pub(crate) since: u64,
    /// Seconds since the address last sent a frame; absent for a pinned entry.
    pub(crate) idle_seconds: Option<u32>,
}

/// What made an entry of the FDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FdbOrigin {
    /// The configuration: the entry is static, and does not age.
    Pinned,
    /// A frame's source address.
    Learnt,
}
