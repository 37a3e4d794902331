//! What comes in: each packet to the endpoint it is for, or refused.

use std::time::Duration;

use crate::event::{Address, Code, Event, Partner as Who};
use crate::limits::{ASKED, ENDPOINTS, NACKS};
use crate::node::Node;
use crate::partner::{Arrived, Body, Notified, Partner, Piece};
use crate::pulls::Pulls;
use crate::seq::Seq;
use crate::wire::{self, Connect, Ends, Frame, Mac, Packet, Small};

/// Codes of nacks.
const BAD_ENDPOINT: u8 = 1;
const CLOSED: u8 = 2;
const BAD_SESSION: u8 = 3;
const BAD_REGION: u8 = 4;

impl Node {
    /// A frame came. Whatever it is, it is taken or dropped. [`tick`](Self::tick) afterwards, once
    /// for all that came: acknowledgements are sent then.
    pub fn receive(&mut self, now: Duration, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            self.out.counters.received += 1;
            self.out.counters.ignored += 1;
            return;
        };
        let (mac, source) = (self.config.mac, frame.source);
        let meant = frame.destination == mac || frame.destination == Mac::BROADCAST;
        if !meant || source == mac || !source.is_host() {
            return;
        }
        self.out.counters.received += 1;
        if let Packet::Announce { nic, serial } = frame.packet {
            if Mac::from_nic(nic) == Some(source) && self.host(now, source).is_some() {
                self.hosts.announced(now, source, nic, serial);
            }
        } else if frame.destination == mac {
            self.hear(now, &frame);
        }
    }

    fn hear(&mut self, now: Duration, frame: &Frame<'_>) {
        let source = frame.source;
        match frame.packet {
            // These introduce a host, so its index need not be right yet.
            Packet::HostQuery { index, magic } => {
                if let Some(host) = self.host(now, source) {
                    let name = &self.config.name;
                    self.hosts.asked(host, index, magic, name, &mut self.out);
                }
            }
            Packet::HostReply { index, magic, name } => {
                if let Some(host) = self.hosts.find(source) {
                    self.hosts
                        .named(now, host, (index, magic, name), &mut self.out);
                }
            }
            Packet::Connect(connect) => {
                if let Some(host) = self.host(now, source) {
                    self.hosts.learn(host, connect.index);
                    self.hear_connect(now, host, source, &connect);
                }
            }
            Packet::Nack {
                ends, code, seq, ..
            } => {
                if let Some(host) = self.hosts.find(source) {
                    self.hear_nack(now, (host, ends.from), ends.to, code, Seq(seq));
                }
            }
            packet if self.hosts.knows(now, frame.index, source) => {
                self.hear_known(now, frame.index, packet);
            }
            // All others are from known hosts only.
            _ => self.out.counters.ignored += 1,
        }
    }

    fn hear_connect(&mut self, now: Duration, host: u16, source: Mac, connect: &Connect) {
        let who = (host, connect.ends.from);
        let at = Address {
            host: source,
            endpoint: connect.ends.from,
        };
        let to = connect.ends.to;
        let heard = self.at(now, to, |endpoint, world| match connect.status {
            None => endpoint.hear_request(who, at, connect, world),
            Some(status) => endpoint.hear_reply(who, connect, status, world),
        });
        // An answer that is too late is nobody's fault.
        if heard.is_some() || connect.status.is_some() {
            return;
        }
        match to < ENDPOINTS {
            true => self.ask(to, at, connect),
            false => self.nack(now, host, connect.ends, Seq(0), None),
        }
    }

    /// Somebody connects to an endpoint that is not open: ask whether it is to be, once.
    fn ask(&mut self, endpoint: u8, from: Address, connect: &Connect) {
        let full = self.asked.len() >= ASKED && !self.asked.contains_key(&(endpoint, from));
        if full {
            return;
        }
        if self.asked.insert((endpoint, from), *connect).is_none() {
            self.out.events.push_back(Event::Asked {
                endpoint,
                from,
                session: connect.session,
                key: connect.word,
            });
        }
    }

    /// Whoever waits for an endpoint that is open now connects.
    pub(crate) fn admit(&mut self, now: Duration, endpoint: u8) {
        let all = (endpoint, Address::FIRST)..=(endpoint, Address::LAST);
        let asked: Vec<_> = self.asked.range(all).map(|(key, c)| (*key, *c)).collect();
        for (key, connect) in asked {
            self.asked.remove(&key);
            if let Some(host) = self.hosts.find(key.1.host) {
                self.hear_connect(now, host, key.1.host, &connect);
            }
        }
    }

    /// Refuse who waits for an endpoint to be opened; `None` forgets it, to be asked again.
    pub fn refuse(&mut self, now: Duration, endpoint: u8, from: Address, code: Option<Code>) {
        let asked = self.asked.remove(&(endpoint, from));
        let (Some(connect), Some(host)) = (asked, self.hosts.find(from.host)) else {
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
                    word: 0,
                    status: Some(wire::BAD_KEY),
                    ..connect
                };
                self.refuse_with(now, host, Packet::Connect(reply));
            }
            Some(_) => self.nack(now, host, connect.ends, Seq(0), None),
        }
    }

    fn hear_nack(&mut self, now: Duration, who: Who, to: u8, code: u8, seq: Seq) {
        let Some(code) = code_of(code) else {
            return;
        };
        self.at(now, to, |endpoint, world| {
            if seq == Seq(0) {
                endpoint.refused(who, code, world);
            }
            let awaits = |partner: &Partner| partner.awaits(seq);
            if endpoint.partners.get(&who).is_some_and(awaits) {
                endpoint.fail(who, code, world);
            }
        });
    }

    fn hear_known(&mut self, now: Duration, host: u16, packet: Packet<'_>) {
        match packet {
            Packet::Small(head) => {
                let message = Arrived::Message {
                    value: head.value,
                    data: head.data.to_vec(),
                };
                self.hear_message(now, host, &head, Piece::Whole(message));
            }
            Packet::Medium(medium) => {
                let fragment = Piece::Fragment {
                    value: medium.head.value,
                    total: medium.total,
                    offset: medium.offset,
                    bytes: medium.head.data,
                };
                self.hear_message(now, host, &medium.head, fragment);
            }
            Packet::Offer(offer) => {
                let arrived = Arrived::Offer {
                    value: offer.head.value,
                    length: offer.length,
                    region: offer.region,
                    generation: offer.generation,
                    offset: offer.offset,
                };
                self.hear_message(now, host, &offer.head, Piece::Whole(arrived));
            }
            Packet::Notify(notify) => {
                let notified = Notified {
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
                self.hear_message(now, host, &head, Piece::Notify(notified));
            }
            Packet::Ack {
                ends,
                session,
                seq,
                number,
            } => self.hear_ack(now, (host, ends.from), ends.to, session, |partner| {
                partner.heard_ack(now, Seq(seq), number)
            }),
            Packet::Pull(pull) => {
                let who = (host, pull.ends.from);
                let code = self.at(now, pull.ends.to, |endpoint, world| {
                    if endpoint.session != pull.session {
                        return Some(BAD_SESSION);
                    }
                    if let Some(partner) = endpoint.partners.get_mut(&who) {
                        partner.heard();
                    }
                    (!endpoint.answer(who, &pull, world)).then_some(BAD_REGION)
                });
                if let Some(code) = code.unwrap_or(Some(refusal(pull.ends.to))) {
                    self.nack_pull(now, host, &pull, code);
                }
            }
            Packet::Reply(reply) => {
                if let Some(to) = Pulls::endpoint(reply.magic) {
                    self.at(now, to, |endpoint, world| {
                        endpoint.hear_reply_to_pull(host, &reply, world);
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
                    self.at(now, to, |endpoint, world| {
                        endpoint.pull_refused((host, from), handle, code, world);
                    });
                }
            }
            // Heard before.
            Packet::Announce { .. }
            | Packet::HostQuery { .. }
            | Packet::HostReply { .. }
            | Packet::Connect(_)
            | Packet::Nack { .. } => {}
        }
    }

    /// Something with a number, and an acknowledgement with it.
    fn hear_message(&mut self, now: Duration, host: u16, head: &Small<'_>, piece: Piece<'_>) {
        let who = (host, head.ends.from);
        let taken = self.at(now, head.ends.to, |endpoint, world| {
            let partner = endpoint.partners.get_mut(&who);
            let right = endpoint.session == head.session;
            let Some(partner) = partner.filter(|partner| right && partner.session.is_some()) else {
                return false;
            };
            partner.heard();
            let acknowledged = partner.acknowledged(world.now, Seq(head.ack));
            let notified = partner.arrived(world.now, Seq(head.seq), piece);
            endpoint.acknowledged(who, acknowledged, world);
            if let Some(notified) = notified {
                endpoint.notified(who, notified, world);
            }
            true
        });
        match taken {
            Some(true) => {}
            Some(false) => self.nack(now, host, head.ends, Seq(head.seq), Some(BAD_SESSION)),
            None => self.nack(now, host, head.ends, Seq(head.seq), None),
        }
    }

    fn hear_ack(
        &mut self,
        now: Duration,
        who: Who,
        to: u8,
        session: u32,
        hear: impl FnOnce(&mut Partner) -> Vec<Body>,
    ) {
        self.at(now, to, |endpoint, world| {
            if endpoint.session != session {
                return;
            }
            if let Some(partner) = endpoint.partners.get_mut(&who) {
                partner.heard();
                let acknowledged = hear(partner);
                endpoint.acknowledged(who, acknowledged, world);
            }
        });
    }

    /// Refuse something; without a code, because its endpoint is not open.
    fn nack(&mut self, now: Duration, host: u16, ends: Ends, seq: Seq, code: Option<u8>) {
        let nack = Packet::Nack {
            ends: Ends {
                to: ends.from,
                from: ends.to,
            },
            code: code.unwrap_or_else(|| refusal(ends.to)),
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

    /// Send a refusal, unless there were too many in this second.
    fn refuse_with(&mut self, now: Duration, host: u16, nack: Packet<'_>) {
        if now >= self.nacks_again {
            self.nacks = NACKS;
            self.nacks_again = now + Duration::from_secs(1);
        }
        if let (Some(route), 1..) = (self.hosts.route(host), self.nacks) {
            self.nacks -= 1;
            self.out.counters.refused += 1;
            self.out.send(route, nack);
        }
    }
}

/// Why something for an endpoint that is not open is refused.
fn refusal(endpoint: u8) -> u8 {
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
