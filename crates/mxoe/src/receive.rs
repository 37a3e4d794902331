//! The receive path: passes each packet to its endpoint, or refuses it.

use std::time::Duration;

use crate::event::{Address, Code, PartnerId};
use crate::limits::{ENDPOINTS, NACKS_PER_SECOND};
use crate::node::Node;
use crate::partner::{Notification, Partner, Payload, Received};
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
        // A node whose frames all travel in datagrams takes no others.
        let decoded = Frame::decode(bytes).filter(|_| !self.config.only_datagrams);
        let Some(frame) = decoded else {
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

    pub(crate) fn receive_connect(
        &mut self,
        now: Duration,
        host: u16,
        source: Mac,
        connect: &Connect,
    ) {
        let id = (host, connect.ends.from);
        let at = Address {
            host: source,
            endpoint: connect.ends.from,
        };
        let to = connect.ends.to;
        if self.may_be_probe(connect) {
            if let Some(code) = self.refusal_of_probe(to, id, connect) {
                code.into_iter()
                    .for_each(|code| self.nack(now, host, connect.ends, Seq(0), Some(code)));
                return;
            }
        }
        if self.is_introduction(to, id, connect) {
            // The partner has lost an earlier connection, if there is one.
            self.with_endpoint(now, to, |endpoint, context| {
                if endpoint.key == Some(connect.key_or_session) {
                    endpoint.fail(id, Code::BadSession, context);
                }
            });
            self.add_pending(to, at, connect);
            return;
        }
        if self.is_for_next_program(to, id, connect) {
            self.add_pending(to, at, connect);
            return;
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

    /// Whether a connect is a request that continues a connection: it expects another number than the first, so it is a probe or repeats a
    /// connect. A probe of a node whose frames all travel in datagrams does not have the sender's key.
    fn may_be_probe(&self, connect: &Connect) -> bool {
        let has_no_key = self.config.only_datagrams && connect.own_key.is_none();
        connect.status.is_none() && (has_no_key || !Seq(connect.expected_seq).is_first())
    }

    /// If the endpoint does not know the connection of a probe, another process had the endpoint before, and the new one must not take
    /// the probe for a connect. Returns the code of the refusal then; or no code if there must be no answer at all, because the refusal
    /// might end another connection than that of the probe.
    fn refusal_of_probe(&self, to: u8, id: PartnerId, connect: &Connect) -> Option<Option<u8>> {
        let Some(endpoint) = self.endpoint(to) else {
            return Some(Some(refusal_code(to)));
        };
        let partner = endpoint.partners.get(&id);
        let has_no_key = self.config.only_datagrams && connect.own_key.is_none();
        let session = partner.and_then(|partner| partner.session);
        let is_known = match has_no_key {
            true => session == Some(connect.session),
            false => session.is_some(),
        };
        if is_known {
            // Numbers of another connection between the same endpoints: the probe is late, or one of the sides does not know yet that the other
            // one has connected again.
            let start = Seq(connect.expected_seq);
            let next = partner.and_then(|partner| partner.next_send);
            let is_same = next.is_some_and(|next| next.same_connection(start));
            return (has_no_key && !is_same).then_some(None);
        }
        let connects = endpoint.connecting.iter().any(|one| one.id == id);
        Some((!connects).then_some(BAD_SESSION))
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
            } => {
                let acknowledgement = (session, Seq(seq), number);
                self.receive_ack(now, (host, ends.from), ends.to, acknowledgement);
            }
            Packet::Pull(pull) => {
                let id = (host, pull.ends.from);
                let code = self.with_endpoint(now, pull.ends.to, |endpoint, context| {
                    let partner = endpoint.partners.get_mut(&id);
                    let Some(partner) = partner.filter(|partner| partner.accepts(pull.session))
                    else {
                        return Some(BAD_SESSION);
                    };
                    partner.mark_alive();
                    (!endpoint.serve_pull(id, &pull, context)).then_some(BAD_REGION)
                });
                if let Some(code) = code.unwrap_or(Some(refusal_code(pull.ends.to))) {
                    self.nack_pull(now, id, &pull, code);
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
            if context.only_datagrams() && endpoint.session == head.session {
                endpoint.confirm_by(id, Seq(head.seq), context);
            }
            let partner = endpoint.partners.get_mut(&id);
            let Some(partner) = partner.filter(|partner| partner.accepts(head.session)) else {
                return false;
            };
            partner.mark_alive();
            let acknowledged = partner.acknowledged(context.now, Seq(head.ack), context.out);
            let notification = partner.receive(context.now, Seq(head.seq), piece);
            if acknowledged {
                endpoint.flush(id, context);
            }
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
        (session, seq, number): (u32, Seq, u32),
    ) {
        self.with_endpoint(now, to, |endpoint, context| {
            let partner = endpoint.partners.get_mut(&id);
            if let Some(partner) = partner.filter(|partner| partner.accepts(session)) {
                partner.mark_alive();
                if partner.receive_ack(context.now, seq, number, context.out) {
                    endpoint.flush(id, context);
                }
            }
        });
    }

    /// Sends a nack. Without a code, the reason is that the endpoint is not open.
    pub(crate) fn nack(
        &mut self,
        now: Duration,
        host: u16,
        ends: Ends,
        seq: Seq,
        code: Option<u8>,
    ) {
        let nack = Packet::Nack {
            ends: Ends {
                to: ends.from,
                from: ends.to,
            },
            code: code.unwrap_or_else(|| refusal_code(ends.to)),
            index: host,
            seq: seq.0,
        };
        self.refuse_with(now, ends.to, (host, ends.from), nack);
    }

    fn nack_pull(&mut self, now: Duration, id: PartnerId, pull: &wire::Pull, code: u8) {
        let nack = Packet::PullNack {
            from: pull.ends.to,
            code,
            handle: pull.handle,
            magic: pull.magic,
        };
        self.refuse_with(now, pull.ends.to, id, nack);
    }

    /// Sends a refusal of an endpoint to a partner, unless the limit of this second is reached.
    pub(crate) fn refuse_with(
        &mut self,
        now: Duration,
        endpoint: u8,
        partner: PartnerId,
        nack: Packet<'_>,
    ) {
        if now >= self.nacks_refill_at {
            self.nacks_left = NACKS_PER_SECOND;
            self.nacks_refill_at = now + Duration::from_secs(1);
        }
        if let (Some(route), 1..) = (self.route(endpoint, partner), self.nacks_left) {
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
