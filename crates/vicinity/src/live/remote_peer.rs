//! What a VM exchanged with a MAC address behind an uplink.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use switch::mac::Mac;

use super::port::per_second;
use crate::status::{PortStatus, RemotePeerStatus};

/// The most remote peers of an interval.
const MOST: usize = 256;

/// Rates between a VM and a MAC address behind an uplink, per second of the interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveRemotePeer {
    /// The network.
    pub(crate) network: String,
    /// The VM.
    pub(crate) vm: String,
    /// The address.
    pub(crate) mac: String,
    /// The VLAN; 0 in a network without VLANs.
    pub(crate) vlan: u16,
    /// Frames that the VM sent.
    pub(crate) tx_frames: f64,
    /// Their bytes.
    pub(crate) tx_bytes: f64,
    /// Frames that the VM received.
    pub(crate) rx_frames: f64,
    /// Their bytes.
    pub(crate) rx_bytes: f64,
}

/// Network, VM, address and VLAN.
type Key<'a> = (&'a str, &'a str, Mac, u16);

/// Returns those that exchanged something since `earlier`, the most bytes first.
pub(super) fn remote_peers(
    now: &[PortStatus],
    earlier: &[PortStatus],
    seconds: f64,
) -> Vec<LiveRemotePeer> {
    let earlier: HashMap<Key<'_>, &RemotePeerStatus> = all(earlier).collect();
    let mut peers: Vec<_> = all(now)
        .map(|((network, vm, mac, vlan), peer)| {
            let earlier = earlier.get(&(network, vm, mac, vlan)).copied();
            let rate = |of: fn(&RemotePeerStatus) -> u64| {
                // Without an earlier figure, it is not known when the frames were counted.
                let growth = earlier.and_then(|earlier| of(peer).checked_sub(of(earlier)));
                per_second(growth.unwrap_or(0), seconds)
            };
            LiveRemotePeer {
                network: network.to_owned(),
                vm: vm.to_owned(),
                mac: mac.to_string(),
                vlan,
                tx_frames: rate(|of| of.sent_frames),
                tx_bytes: rate(|of| of.sent_bytes),
                rx_frames: rate(|of| of.received_frames),
                rx_bytes: rate(|of| of.received_bytes),
            }
        })
        .collect();
    let bytes = |peer: &LiveRemotePeer| peer.tx_bytes + peer.rx_bytes;
    peers.retain(|peer| bytes(peer) > 0.0);
    peers.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    peers.truncate(MOST);
    peers
}

fn all(ports: &[PortStatus]) -> impl Iterator<Item = (Key<'_>, &RemotePeerStatus)> {
    ports.iter().flat_map(|port| {
        let peers = port.remote_peers.iter();
        peers.map(|peer| ((&*port.network, &*port.vm, peer.mac, peer.vlan), peer))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::port;
    use crate::status::State;

    #[test]
    fn rates_are_of_known_peers_and_the_busiest_are_first() {
        let peer = |last: u8, sent_bytes, received_bytes| RemotePeerStatus {
            mac: Mac::from_octets([0x52, 0x54, 0, 0, 0, last]),
            vlan: 0,
            sent_frames: 1,
            sent_bytes,
            received_frames: 1,
            received_bytes,
        };
        let at = |remote_peers| {
            let port = port("web", State::Running);
            [PortStatus {
                remote_peers,
                ..port
            }]
        };
        let earlier = at(vec![
            peer(1, 100, 0),
            peer(2, 0, 100),
            peer(3, 900, 0),
            peer(4, 5, 5),
        ]);
        let now = at(vec![
            peer(1, 300, 0),
            peer(2, 0, 900),
            peer(3, 10, 0),
            peer(4, 5, 5),
            peer(5, 9, 9),
        ]);
        let all = remote_peers(&now, &earlier, 2.0);
        let told: Vec<_> = all
            .iter()
            .map(|it| (it.mac.as_str(), it.tx_bytes, it.rx_bytes))
            .collect();
        let expected = [
            ("52:54:00:00:00:02", 0.0, 400.0),
            ("52:54:00:00:00:01", 100.0, 0.0),
        ];
        assert_eq!(told, expected);
    }
}
