//! The frames of a node that travel in datagrams, in both directions.

use std::net::SocketAddr;
use std::time::Duration;

use crate::node::Node;
use crate::outgoing_datagram::OutgoingDatagram;
use crate::pulls::Pulls;
use crate::wire::{Frame, Packet};

impl Node {
    /// Receives a frame that came in a datagram from this address. Any user of a host may send a datagram, so only those from the address that
    /// a partner has told in its connect count: replies to pulls from it, and its probes of the path.
    pub fn receive_datagram(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) {
        let frame = Frame::decode(bytes).filter(|frame| frame.destination == self.config.mac);
        let is_known = frame.is_some_and(|frame| self.is_of_partner(from, &frame));
        self.out.counters.received += 1;
        match frame.filter(|_| is_known) {
            Some(frame) => self.receive_unicast(now, &frame),
            None => self.out.counters.ignored += 1,
        }
    }

    /// Returns whether a frame is one that its sender's partner here accepts in a datagram from this address.
    fn is_of_partner(&self, from: SocketAddr, frame: &Frame<'_>) -> bool {
        let Some(host) = self.hosts.find(frame.source) else {
            return false;
        };
        let (to, id) = match frame.packet {
            Packet::Connect(connect) if connect.status.is_none() => {
                (Some(connect.ends.to), Some((host, connect.ends.from)))
            }
            Packet::Reply(reply) => {
                let to = Pulls::endpoint(reply.magic);
                let endpoint = to.and_then(|to| self.endpoint(to));
                let pull = endpoint.and_then(|endpoint| endpoint.pulls.find(reply.handle));
                (to, pull.map(|pull| pull.id))
            }
            _ => return false,
        };
        let endpoint = to.and_then(|to| self.endpoint(to));
        let partner = endpoint
            .zip(id)
            .and_then(|(endpoint, id)| endpoint.partners.get(&id));
        partner.is_some_and(|partner| partner.paths.is_from_partner(from))
    }

    /// Returns the frames to be sent in datagrams, in order, each in two parts, with its destination.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, [&[u8]; 2])> {
        self.out.datagrams.iter().map_while(|datagram| {
            let data = self.data_of(datagram)?;
            Some((datagram.to, [datagram.head.as_slice(), data]))
        })
    }

    /// Removes the first frames of [`datagrams`](Self::datagrams), which were sent, and those that no receiver waits for any more.
    pub fn datagrams_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.out.drop_datagram();
        }
        while let Some(datagram) = self.out.datagrams.front() {
            if self.data_of(datagram).is_some() {
                return;
            }
            self.out.drop_datagram();
        }
    }

    /// Returns the data of a reply, or none for another frame. `None` if the message has ended, or the receiver has what it requested.
    fn data_of(&self, datagram: &OutgoingDatagram) -> Option<&[u8]> {
        match &datagram.data {
            None => Some(&[]),
            Some(data) => self.endpoint(data.endpoint)?.data_of(data),
        }
    }
}
