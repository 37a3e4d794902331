//! MAC addresses behind an uplink.

use serde::{Deserialize, Serialize};
use switch::control::RemotePeer;
use switch::mac::Mac;

/// What a port exchanged with a MAC address behind an uplink, since the address has had a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RemotePeerStatus {
    /// The address.
    pub(crate) mac: Mac,
    /// The VLAN; 0 in a network without VLANs.
    pub(crate) vlan: u16,
    /// Frames that the port sent to the address.
    pub(crate) sent_frames: u64,
    /// Their bytes.
    pub(crate) sent_bytes: u64,
    /// Frames that the port received from the address.
    pub(crate) received_frames: u64,
    /// Their bytes.
    pub(crate) received_bytes: u64,
}

impl From<&RemotePeer> for RemotePeerStatus {
    fn from(peer: &RemotePeer) -> Self {
        let ([sent_frames, sent_bytes], [received_frames, received_bytes]) =
            (peer.sent, peer.received);
        Self {
            mac: peer.mac,
            vlan: peer.vlan,
            sent_frames,
            sent_bytes,
            received_frames,
            received_bytes,
        }
    }
}
