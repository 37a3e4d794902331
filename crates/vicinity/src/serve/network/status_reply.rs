//! A network's answer to a request for its state.

use switch::control::{DuplicateMac, Order, Peer, PortId};
use tokio::time::Instant;

use super::Network;
use super::message::Answer;
use super::port::Port;
use crate::status::{Duplicate, NetworkStatus, PortStatus, RemotePeerStatus, SentTo};

impl Network {
    /// Requests a report from the data plane, unless a request is outstanding.
    pub(in crate::serve) fn request_report(&mut self, now: Instant) {
        if self.pending.begin(now) {
            self.plane.orders.push(Order::Report, None);
        }
    }

    /// Ends the request, because the data plane has answered or is gone, and answers the clients.
    pub(in crate::serve) fn answer(&mut self) {
        self.pending.finish();
        self.send_status();
    }

    /// Sends the known state to the clients that wait.
    pub(in crate::serve) fn send_status(&mut self) {
        let now = Instant::now();
        let name = &self.config.name;
        let up = self.lifecycle.is_up();
        let status = |port: &Port| PortStatus {
            sent_to: self.sent_to(port),
            mirrors: self.mirrored_by(port),
            duplicates: self.duplicates(port),
            remote_peers: self.remote_peers_of(port),
            ..port.status(name, up, now)
        };
        let answer = Answer {
            ports: self.ports.values().map(status).collect(),
            network: NetworkStatus {
                name: name.clone(),
                up,
                restarts: self.lifecycle.restarts(),
                reason: self
                    .failure_reason
                    .clone()
                    .or_else(|| self.pending.stale_reason()),
                uplink: self.config.uplink.as_ref().map(|out| out.name().to_owned()),
                folder: self.config.folder.display().to_string(),
                accept: self.config.accept,
                gather_us: self.config.moderation_us,
                moderation_us: self.config.moderation_us,
                look_ups: self.config.fdb_lookups,
                fdb_lookups: self.config.fdb_lookups,
                ports: self.ports.len(),
                attached: self.ports.values().filter(|port| port.attached()).count(),
                worker: self.worker,
            },
        };
        self.pending.reply(answer);
    }

    /// Returns the addresses behind the uplink with which a port exchanged the most bytes.
    fn remote_peers_of(&self, port: &Port) -> Vec<RemotePeerStatus> {
        let all = self.remote_peers.iter();
        all.filter(|peer| PortId(peer.port) == port.id)
            .map(RemotePeerStatus::from)
            .collect()
    }

    /// Returns the addresses that this port and another one use.
    fn duplicates(&self, port: &Port) -> Vec<Duplicate> {
        let named = |duplicate: &DuplicateMac| {
            Some(Duplicate {
                mac: duplicate.mac,
                vlan: duplicate.vlan,
                vm: self.ports.get(&PortId(duplicate.port))?.name.clone(),
                moves: duplicate.moves,
            })
        };
        port.duplicates().iter().filter_map(named).collect()
    }

    /// Returns what a port sent to each other port that still exists.
    fn sent_to(&self, port: &Port) -> Vec<SentTo> {
        let named = |peer: &Peer| {
            Some(SentTo {
                vm: self.ports.get(&PortId(peer.port))?.name.clone(),
                frames: peer.frames,
                bytes: peer.bytes,
            })
        };
        port.peers().iter().filter_map(named).collect()
    }
}
