//! The remote peers of a network, for a report.

use crate::control::RemotePeer;
use crate::port::{Kind, Port};
use crate::remote_peers::Sums;

/// Returns the remote peers of all ports, those with the most bytes first.
pub(crate) fn of_ports<'p>(ports: impl Iterator<Item = (u16, &'p mut Port)>) -> Vec<RemotePeer> {
    let mut sums = Sums::default();
    for (number, port) in ports {
        match &mut port.kind {
            Kind::Guest(guest) => {
                for state in guest.ring_states_mut() {
                    sums.add(number, &state.remote_peers, |peer| &mut peer.sent);
                }
            }
            Kind::Uplink(uplink) => {
                for queue in uplink.queues() {
                    for (port, peers) in queue.ingress().remote_senders.ports() {
                        sums.add(port, peers, |peer| &mut peer.received);
                    }
                }
            }
        }
    }
    sums.most()
}
