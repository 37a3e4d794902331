//! The frames of a node that travel in datagrams, in both directions, and whom they may be from.

use std::net::SocketAddr;
use std::time::Duration;

use crate::event::{Address, Code};
use crate::node::Node;
use crate::outgoing_datagram::OutgoingDatagram;
use crate::partner::Partner;
use crate::programs::Programs;
use crate::pulls::Pulls;
use crate::wire::{Connect, Frame, Medium, Notify, Offer, Packet, Pull, Reply, Small};

impl Node {
    /// Tells a node whose frames all travel in datagrams ([`Config::only_datagrams`](crate::Config::only_datagrams)) where a remote endpoint takes
    /// those from an endpoint of this node, and where its own come from. The endpoint need not be open yet. A new address
    /// replaces the old one, whose connection ends: another program has the remote endpoint now. Returns false if this node cannot send to the address, or if the
    /// table is full.
    pub fn add_partner(
        &mut self,
        now: Duration,
        endpoint: u8,
        partner: Address,
        udp: SocketAddr,
    ) -> bool {
        let own = self.config.udp;
        let same_family = own.is_some_and(|own| own.is_ipv4() == udp.is_ipv4());
        let known = match &self.programs {
            Some(programs) if same_family => programs.find(endpoint, partner),
            _ => return false,
        };
        let Some(host) = self.host(now, partner.host) else {
            return false;
        };
        if known.is_some_and(|known| known != udp) {
            self.with_endpoint(now, endpoint, |endpoint, context| {
                endpoint.fail((host, partner.endpoint), Code::Closed, context);
            });
        }
        let Some(mut programs) = self.programs.take() else {
            return false;
        };
        if programs.is_full(endpoint, partner) {
            programs.remove_unused(now, |endpoint, partner| self.uses(endpoint, partner));
        }
        let has_room = !programs.is_full(endpoint, partner);
        if has_room {
            programs.insert(now, (endpoint, partner), udp);
        }
        self.programs = Some(programs);
        has_room
    }

    /// Returns where the programs of partners take datagrams that are in use, or were told a short time ago, each once.
    #[must_use]
    pub fn partner_programs(&self, now: Duration) -> Vec<SocketAddr> {
        let is_in_use = |endpoint, partner| self.uses(endpoint, partner);
        let programs = self.programs.as_ref();
        programs.map_or_else(Vec::new, |programs| programs.in_use(now, is_in_use))
    }

    /// Ends the connections to a program that takes no datagrams any more ([`Datagrams::refused`](crate::Datagrams::refused)), and the connects.
    pub fn program_ended(&mut self, now: Duration, program: SocketAddr) {
        let programs = self.programs.iter();
        let at_program = programs.flat_map(|programs| programs.at(program));
        let partners: Vec<_> = at_program.collect();
        for (endpoint, partner) in partners {
            if let Some(host) = self.hosts.find(partner.host) {
                self.with_endpoint(now, endpoint, |endpoint, context| {
                    let id = (host, partner.endpoint);
                    endpoint.connect_refused(id, Code::Closed, context);
                });
            }
        }
    }

    /// Whether a remote endpoint is a partner in use, or waits until the program answers it.
    fn uses(&self, endpoint: u8, partner: Address) -> bool {
        let is_pending = self.pending_connects.contains_key(&(endpoint, partner));
        let id = self.hosts.find(partner.host);
        let endpoint = self.endpoint(endpoint);
        let in_use = endpoint.zip(id);
        is_pending || in_use.is_some_and(|(endpoint, host)| endpoint.uses((host, partner.endpoint)))
    }

    /// Receives a frame that came in a datagram from this address. Any user of a host may send a datagram. So only those from the address that
    /// a partner has told in its connect count: replies to pulls from it, and its probes of the path. Or, if all frames travel in datagrams,
    /// those of a partner from the address that [`add_partner`](Self::add_partner) has told.
    pub fn receive_datagram(&mut self, now: Duration, from: SocketAddr, bytes: &[u8]) {
        let frame = Frame::decode(bytes)
            .filter(|frame| frame.destination == self.config.mac)
            .filter(|frame| match &self.programs {
                Some(programs) => self.program_of(programs, frame) == Some(from),
                None => self
                    .partner_of(frame)
                    .is_some_and(|partner| partner.paths.is_from_partner(from)),
            });
        self.out.counters.received += 1;
        match frame {
            Some(frame) => self.receive_unicast(now, &frame),
            None => self.out.counters.ignored += 1,
        }
    }

    /// Returns where the program takes datagrams that has the endpoint that a frame is from.
    fn program_of(&self, programs: &Programs, frame: &Frame<'_>) -> Option<SocketAddr> {
        let (to, from) = match frame.packet {
            Packet::Announce { .. } | Packet::HostQuery { .. } | Packet::HostReply { .. } => None,
            Packet::Connect(Connect { ends, .. })
            | Packet::Small(Small { ends, .. })
            | Packet::Medium(Medium {
                head: Small { ends, .. },
                ..
            })
            | Packet::Offer(Offer {
                head: Small { ends, .. },
                ..
            })
            | Packet::Pull(Pull { ends, .. })
            | Packet::Notify(Notify { ends, .. })
            | Packet::Ack { ends, .. }
            | Packet::Nack { ends, .. } => Some((ends.to, ends.from)),
            Packet::Reply(Reply { handle, magic, .. }) => {
                let to = Pulls::endpoint(magic)?;
                let pull = self.endpoint(to)?.pulls.find(handle)?;
                Some((to, pull.id.1))
            }
            Packet::PullNack { from, magic, .. } => Some((Pulls::endpoint(magic)?, from)),
        }?;
        let from = Address {
            host: frame.source,
            endpoint: from,
        };
        programs.find(to, from)
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
