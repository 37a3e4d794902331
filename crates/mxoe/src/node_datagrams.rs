//! The frames of a node that travel in datagrams, in both directions.

use std::net::SocketAddr;
use std::time::Duration;

use crate::node::Node;
use crate::outgoing_datagram::OutgoingDatagram;
use crate::partner::Partner;
use crate::pulls::Pulls;
use crate::wire::{Frame, Packet};

impl Node {
    /// Receives a frame that came in a datagram from this address. Any user of a host may send a datagram, so only those from the address that
    /// a partner has told in its connect count: replies to pulls from it, and its probes of the path.
    pub fn receive_datagram(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) {
        let is_from = |partner: &Partner| partner.paths.is_from_partner(from);
        let frame = Frame::decode(bytes)
            .filter(|frame| frame.destination == self.config.mac)
            .filter(|frame| self.partner_of(frame).is_some_and(is_from));
        self.out.counters.received += 1;
        match frame {
            Some(frame) => self.receive_unicast(now, &frame),
            None => self.out.counters.ignored += 1,
        }
    }

    /// Returns the partner that a frame is from, if a datagram may carry such a frame.
    fn partner_of(&self, frame: &Frame<'_>) -> Option<&Partner> {
        let host = self.hosts.find(frame.source)?;
        match frame.packet {
            Packet::Connect(connect) if connect.status.is_none() => {
                let endpoint = self.endpoint(connect.ends.to)?;
                endpoint.partners.get(&(host, connect.ends.from))
            }
            Packet::Reply(reply) => {
                let endpoint = self.endpoint(Pulls::endpoint(reply.magic)?)?;
                endpoint
                    .partners
                    .get(&endpoint.pulls.find(reply.handle)?.id)
            }
            _ => None,
        }
    }

    /// Returns the frames to be sent in datagrams, in order, each in two parts, with its destination.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, [&[u8]; 2])> {
        self.out.datagrams.iter().map_while(|datagram| {
            let data = self.data_of(datagram)?;
            Some((datagram.to, [datagram.head.as_slice(), data]))
        })
    }

    /// Removes the first frames of [`datagrams`](Self::datagrams), which were sent.
    pub fn datagrams_sent(&mut self, count: usize) {
        for _ in 0..count {
            self.out.drop_datagram();
        }
    }

    /// Removes the first frames that no receiver waits for any more. [`datagrams`](Self::datagrams) ends before such a frame.
    pub fn drop_old_datagrams(&mut self) {
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
