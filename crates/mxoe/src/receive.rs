//! The receive path: passes each packet to its endpoint, or refuses it.

use std::time::Duration;

use crate::event::{Address, Code, Event, PartnerId};
use crate::limits::{ENDPOINTS, NACKS_PER_SECOND, PENDING_CONNECTS};
use crate::node::Node;
use crate::partner::{Body, Notification, Partner, Payload, Received};
use crate::pulls::Pulls;
use crate::seq::Seq;
use crate::wire::{self, Connect, Ends, Frame, Mac, Packet, Small};

/// Codes of nacks.
const BAD_ENDPOINT: u8 = 1;
const CLOSED: u8 = 2;
const BAD_SESSION: u8 = 3;
const BAD_REGION: u8 = 4;

impl Node {
    /// Receives a frame, and drops it unless it is valid and expected. Call [`tick`](Self::tick)
    /// once after a batch of frames: it sends the acknowledgements.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            self.out.counters.received += 1;
            self.out.counters.ignored += 1;
            return;
        };
        let (mac, source) = (self.config.mac, frame.source);
        let for_this_node = frame.destination == mac || frame.destination == Mac::BROADCAST;
        if !for_this_node || source == mac || !source.is_host() {
            return;
        }
        self.out.counters.received += 1;
        if let Packet::Announce { nic, serial } = frame.packet {
            if Mac::from_nic(nic) == Some(source) && self.host(now, source).is_some() {
                self.hosts.receive_announcement(now, source, nic, serial);
            }
        } else if frame.destination == mac {
            self.receive_unicast(now, &frame);
        }
    }

    pub(crate) fn receive_unicast(&mut self, now: Duration, frame: &Frame<'_>) {
        let source = frame.source;
        match frame.packet {
            // These packets introduce a host, so their index need not match yet.
            Packet::HostQuery { index, magic } => {
                if let Some(host) = self.host(now, source) {
                    let name = &self.config.name;
                    self.hosts
                        .receive_query(host, index, magic, name, &mut self.out);
                }
            }
            Packet::HostReply { index, magic, name } => {
                if let Some(host) = self.hosts.find(source) {
                    self.hosts
                        .receive_name(now, host, (index, magic, name), &mut self.out);
                }
            }
            Packet::Connect(connect) => {
                if let Some(host) = self.host(now, source) {
                    self.hosts.set_index(host, connect.index);
                    self.receive_connect(now, host, source, &connect);
                }
            }
            Packet::Nack {
                ends, code, seq, ..
            } => {
                if let Some(host) = self.hosts.find(source) {
                    self.receive_nack(now, (host, ends.from), ends.to, code, Seq(seq));
                }
            }
            // All other packets are valid from known hosts only.
            packet => match self.hosts.sender(now, frame.index, source) {
                Some(host) => self.receive_from_known_host(now, host, packet),
                None => self.out.counters.ignored += 1,
            },
        }
    }

    fn receive_connect(&mut self, now: Duration, host: u16, source: Mac, connect: &Connect) {
        let id = (host, connect.ends.from);
        let at = Address {
            host: source,
            endpoint: connect.ends.from,
        };
        let to = connect.ends.to;
        if connect.status.is_none() && !Seq(connect.expected_seq).is_first() {
            if let Some(code) = self.refusal_of_probe(to, id) {
                code.into_iter()
                    .for_each(|code| self.nack(now, host, connect.ends, Seq(0), Some(code)));
                return;
            }
        }
        let handled = self.with_endpoint(now, to, |endpoint, context| match connect.status {
            None => endpoint.receive_connect_request(id, at, connect, context),
            Some(status) => endpoint.receive_connect_reply(id, connect, status, context),
        });
        // A late reply is no error of the peer, so it is not refused.
        if handled.is_some() || connect.status.is_some() {
            return;
        }
        match to < ENDPOINTS {
            true => self.add_pending(to, at, connect),
            false => self.nack(now, host, connect.ends, Seq(0), None),
        }
    }

    /// A connect that expects another number than the first continues a connection: it is a probe, or repeats a connect. If the
    /// endpoint does not know the connection, another process had the endpoint before, and the new one must not take the probe for
    /// a connect. Returns the code of the refusal then; or no code if this endpoint is connecting itself, because the refusal
    /// might end the new connection.
    fn refusal_of_probe(&self, to: u8, id: PartnerId) -> Option<Option<u8>> {
        let Some(endpoint) = self.endpoint(to) else {
            return Some(Some(refusal_code(to)));
        };
        let partner = endpoint.partners.get(&id);
        if partner.is_some_and(|partner| partner.session.is_some()) {
            return None;
        }
        let connects = endpoint.connecting.iter().any(|one| one.id == id);
        Some((!connects).then_some(BAD_SESSION))
    }

    /// Stores a connect to an endpoint that is not open, and asks the program once whether to open
    /// it.
    fn add_pending(&mut self, endpoint: u8, from: Address, connect: &Connect) {
        let full = self.pending_connects.len() >= PENDING_CONNECTS
            && !self.pending_connects.contains_key(&(endpoint, from));
        if full {
            return;
        }
        if self
            .pending_connects
            .insert((endpoint, from), *connect)
            .is_none()
        {
            self.out.events.push_back(Event::ConnectRequest {
                endpoint,
                from,
                session: connect.session,
                key: connect.key_or_session,
                peer_key: connect.own_key,
            });
        }
    }

    /// Answers the connects that waited for this endpoint to open.
    pub(crate) fn accept_pending(&mut self, now: Duration, endpoint: u8) {
        let all = (endpoint, Address::FIRST)..=(endpoint, Address::LAST);
        let accepted: Vec<_> = self
            .pending_connects
            .range(all)
            .map(|(key, c)| (*key, *c))
            .collect();
        for (key, connect) in accepted {
            self.pending_connects.remove(&key);
            if let Some(host) = self.hosts.find(key.1.host) {
                self.receive_connect(now, host, key.1.host, &connect);
            }
        }
    }

    /// Refuses a connect that waits for its endpoint to open. With `None`, the node forgets the
    /// request without an answer, and asks the program again when the peer repeats it.
    pub fn refuse(&mut self, now: Duration, endpoint: u8, from: Address, code: Option<Code>) {
        let pending = self.pending_connects.remove(&(endpoint, from));
        let (Some(connect), Some(host)) = (pending, self.hosts.find(from.host)) else {
            return;
        };
        match code {
            None => {}
            Some(Code::BadKey) => {
                let reply = Connect {
                    ends: Ends {
                        to: from.endpoint,
                        from: endpoint,
                    },
                    index: host,
                    key_or_session: 0,
                    status: Some(wire::BAD_KEY),
                    own_key: None,
                    pipeline: None,
                    udp: None,
                    ..connect
                };
                self.refuse_with(now, host, Packet::Connect(reply));
            }
            Some(_) => self.nack(now, host, connect.ends, Seq(0), None),
        }
    }

    /// Tells a partner that the endpoint closes, by the answer that the partner's next frame would get. For a node that
    /// ends itself, and will answer no more.
    pub fn notify_closed(&mut self, now: Duration, endpoint: u8, partner: Address) {
        if let Some(host) = self.hosts.find(partner.host) {
            let ends = Ends {
                to: endpoint,
                from: partner.endpoint,
            };
            self.nack(now, host, ends, Seq(0), None);
        }
    }

    fn receive_nack(&mut self, now: Duration, id: PartnerId, to: u8, code: u8, seq: Seq) {
        let Some(code) = code_of(code) else {
            return;
        };
        self.with_endpoint(now, to, |endpoint, context| {
            if seq == Seq(0) {
                endpoint.connect_refused(id, code, context);
            }
            let is_unacknowledged = |partner: &Partner| partner.is_unacknowledged(seq);
            if endpoint.partners.get(&id).is_some_and(is_unacknowledged) {
                endpoint.fail(id, code, context);
            }
        });
    }

    fn receive_from_known_host(&mut self, now: Duration, host: u16, packet: Packet<'_>) {
        match packet {
            Packet::Small(head) => {
                let message = Received::Message {
                    value: head.value,
                    data: head.data.to_vec(),
                };
                self.receive_message(now, host, &head, Payload::Whole(message));
            }
            Packet::Medium(medium) => {
                let fragment = Payload::Fragment {
                    value: medium.head.value,
                    total: medium.total,
                    offset: medium.offset,
                    bytes: medium.head.data,
                };
                self.receive_message(now, host, &medium.head, fragment);
            }
            Packet::Offer(offer) => {
                let arrived = Received::Offer {
                    value: offer.head.value,
                    length: offer.length,
                    region: offer.region,
                    generation: offer.generation,
                    offset: offer.offset,
                };
                self.receive_message(now, host, &offer.head, Payload::Whole(arrived));
            }
            Packet::Notify(notify) => {
                let notification = Notification {
                    total: notify.total,
                    region: notify.region,
                    generation: notify.generation,
                };
                let head = Small {
                    ends: notify.ends,
                    seq: notify.seq,
                    ack: notify.ack,
                    value: 0,
                    session: notify.session,
                    data: &[],
                };
                self.receive_message(now, host, &head, Payload::Notify(notification));
            }
            Packet::Ack {
                ends,
                session,
                seq,
                number,
            } => self.receive_ack(now, (host, ends.from), ends.to, session, |partner| {
                partner.receive_ack(now, Seq(seq), number)
            }),
            Packet::Pull(pull) => {
                let id = (host, pull.ends.from);
                let code = self.with_endpoint(now, pull.ends.to, |endpoint, context| {
                    if endpoint.session != pull.session {
                        return Some(BAD_SESSION);
                    }
                    if let Some(partner) = endpoint.partners.get_mut(&id) {
                        partner.mark_alive();
                    }
                    (!endpoint.serve_pull(id, &pull, context)).then_some(BAD_REGION)
                });
                if let Some(code) = code.unwrap_or(Some(refusal_code(pull.ends.to))) {
                    self.nack_pull(now, host, &pull, code);
                }
            }
            Packet::Reply(reply) => {
                if let Some(to) = Pulls::endpoint(reply.magic) {
                    self.with_endpoint(now, to, |endpoint, context| {
                        endpoint.receive_pull_reply(host, &reply, context);
                    });
                }
            }
            Packet::PullNack {
                from,
                code,
                handle,
                magic,
            } => {
                if let (Some(to), Some(code)) = (Pulls::endpoint(magic), code_of(code)) {
                    self.with_endpoint(now, to, |endpoint, context| {
                        endpoint.pull_refused((host, from), handle, code, context);
                    });
                }
            }
            // `receive_unicast` has handled these.
            Packet::Announce { .. }
            | Packet::HostQuery { .. }
            | Packet::HostReply { .. }
            | Packet::Connect(_)
            | Packet::Nack { .. } => {}
        }
    }

    /// Receives a numbered packet and the acknowledgement that it carries.
    fn receive_message(&mut self, now: Duration, host: u16, head: &Small<'_>, piece: Payload<'_>) {
        let id = (host, head.ends.from);
        let accepted = self.with_endpoint(now, head.ends.to, |endpoint, context| {
            let partner = endpoint.partners.get_mut(&id);
            let same_session = endpoint.session == head.session;
            let Some(partner) = partner.filter(|partner| same_session && partner.session.is_some())
            else {
                return false;
            };
            partner.mark_alive();
            let acknowledged = partner.acknowledged(context.now, Seq(head.ack));
            let notification = partner.receive(context.now, Seq(head.seq), piece);
            endpoint.acknowledged(id, acknowledged, context);
            if let Some(notification) = notification {
                endpoint.receive_notification(id, notification, context);
            }
            true
        });
        match accepted {
            Some(true) => {}
            Some(false) => self.nack(now, host, head.ends, Seq(head.seq), Some(BAD_SESSION)),
            None => self.nack(now, host, head.ends, Seq(head.seq), None),
        }
    }

    fn receive_ack(
        &mut self,
        now: Duration,
        id: PartnerId,
        to: u8,
        session: u32,
        handle: impl FnOnce(&mut Partner) -> Vec<Body>,
    ) {
        self.with_endpoint(now, to, |endpoint, context| {
            if endpoint.session != session {
                return;
            }
            if let Some(partner) = endpoint.partners.get_mut(&id) {
                partner.mark_alive();
                let acknowledged = handle(partner);
                endpoint.acknowledged(id, acknowledged, context);
            }
        });
    }

    /// Sends a nack. Without a code, the reason is that the endpoint is not open.
    fn nack(&mut self, now: Duration, host: u16, ends: Ends, seq: Seq, code: Option<u8>) {
        let nack = Packet::Nack {
            ends: Ends {
                to: ends.from,
                from: ends.to,
            },
            code: code.unwrap_or_else(|| refusal_code(ends.to)),
            index: host,
            seq: seq.0,
        };
        self.refuse_with(now, host, nack);
    }

    fn nack_pull(&mut self, now: Duration, host: u16, pull: &wire::Pull, code: u8) {
        let nack = Packet::PullNack {
            from: pull.ends.to,
            code,
            handle: pull.handle,
            magic: pull.magic,
        };
        self.refuse_with(now, host, nack);
    }

    /// Sends a refusal, unless the limit of this second is reached.
    fn refuse_with(&mut self, now: Duration, host: u16, nack: Packet<'_>) {
        if now >= self.nacks_refill_at {
            self.nacks_left = NACKS_PER_SECOND;
            self.nacks_refill_at = now + Duration::from_secs(1);
        }
        if let (Some(route), 1..) = (self.hosts.route(host), self.nacks_left) {
            self.nacks_left -= 1;
            self.out.counters.refused += 1;
            self.out.send(route, nack);
        }
    }
}

/// Returns the reason why a packet for an endpoint that is not open is refused.
fn refusal_code(endpoint: u8) -> u8 {
    match endpoint < ENDPOINTS {
        true => CLOSED,
        false => BAD_ENDPOINT,
    }
}

fn code_of(nack: u8) -> Option<Code> {
    Some(match nack {
        BAD_ENDPOINT => Code::BadEndpoint,
        CLOSED => Code::Closed,
        BAD_SESSION => Code::BadSession,
        BAD_REGION => Code::BadRegion,
        _ => return None,
    })
}
