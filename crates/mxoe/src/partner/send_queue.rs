//! The send queue of a partner: numbered packets that were sent, until the partner has acknowledged them, and acknowledgements of what it sent.

use std::time::Duration;

use super::{Body, Content, Partner, Sent};
use crate::event::Code;
use crate::limits::{
    FRAGMENT, LARGE_PIPELINE, LARGE_RETRIES, MAX_SMALL, PIPELINE, RESEND_TIMEOUT,
    RESEND_TIMEOUT_MIN,
};
use crate::output::{Output, Route};
use crate::seq::Seq;
use crate::wire::{Medium, Notify, Offer, Packet, Small};

/// Bounds of the retransmission timeout.
const RESEND_BOUNDS: (Duration, Duration) = (RESEND_TIMEOUT_MIN, RESEND_TIMEOUT);

impl Partner {
    /// Assigns a sequence number to a body and sends it. Returns false without a connection.
    pub(crate) fn send(
        &mut self,
        now: Duration,
        route: Route,
        body: Body,
        out: &mut Output,
    ) -> bool {
        let (Some(session), Some(seq)) = (self.session, self.next_send) else {
            return false;
        };
        self.next_send = Some(seq.next());
        self.transmit(route, session, seq, &body, out);
        self.sent_bytes += body.bytes();
        self.sent.push_back(Sent {
            seq,
            body,
            sent_at: now,
            retransmit_at: now + self.ack_time.timeout(0, RESEND_BOUNDS),
            retries: 0,
        });
        true
    }

    /// Sends the packets of a body. Each of them also acknowledges what arrived.
    fn transmit(&mut self, route: Route, session: u32, seq: Seq, body: &Body, out: &mut Output) {
        self.unacked = 0;
        self.ack_at = None;
        let (ends, ack) = (self.ends(), self.next_receive.0);
        let head = |value, data| Small {
            ends,
            seq: seq.0,
            ack,
            value,
            session,
            data,
        };
        match body {
            Body::Message { value, data, .. } if data.len() <= MAX_SMALL => {
                out.send(route, Packet::Small(head(*value, data)));
            }
            Body::Message { value, data, .. } => {
                // The length is at most 32 KiB.
                let total = u16::try_from(data.len()).unwrap_or_default();
                let pipeline = match (data.len() > FRAGMENT, route.datagrams) {
                    (true, None) => self.paths.pipeline(),
                    (true, Some(_)) => LARGE_PIPELINE,
                    (false, _) => PIPELINE,
                };
                for (number, piece) in (0u16..).zip(data.chunks(1 << pipeline)) {
                    let medium = Medium {
                        head: head(*value, piece),
                        total,
                        offset: number << pipeline,
                        pipeline,
                    };
                    out.send(route, Packet::Medium(medium));
                }
            }
            Body::Offer {
                value,
                length,
                region,
                generation,
            } => {
                let offer = Offer {
                    head: head(*value, &[]),
                    length: *length,
                    region: *region,
                    generation: *generation,
                    offset: 0,
                };
                out.send(route, Packet::Offer(offer));
            }
            Body::Notify {
                total,
                region,
                generation,
            } => {
                let notify = Notify {
                    ends,
                    session,
                    total: *total,
                    region: *region,
                    generation: *generation,
                    seq: seq.0,
                    ack,
                };
                out.send(route, Packet::Notify(notify));
            }
        }
    }

    /// Handles an acknowledgement of all numbers below `seq`: ends the sends of these messages. Returns whether there were any packets
    /// to acknowledge.
    pub(crate) fn acknowledged(&mut self, now: Duration, seq: Seq, out: &mut Output) -> bool {
        let first = self.sent.front().map(|sent| sent.seq);
        let count = first.and_then(|first| seq.after(first)).map(usize::from);
        let Some(count) = count.filter(|count| (1..=self.sent.len()).contains(count)) else {
            return false;
        };
        // Counted from the first transmission: after a retransmission, the sample is rather
        // too long than too short.
        if let Some(newest) = self.sent.get(count - 1) {
            self.ack_time.add_sample(now.saturating_sub(newest.sent_at));
        }
        for sent in self.sent.drain(..count) {
            self.sent_bytes -= sent.body.bytes();
            if let Body::Message { data, token, .. } = sent.body {
                out.end_send(token, Code::Success, Content::length_of(&data));
                if data.len() > MAX_SMALL {
                    out.message_buffers.give(data);
                }
            }
        }
        true
    }

    /// Handles an acknowledgement packet. One that is older than the last is ignored. Returns the same.
    pub(crate) fn receive_ack(
        &mut self,
        now: Duration,
        seq: Seq,
        number: u32,
        out: &mut Output,
    ) -> bool {
        // Newer means ahead by less than half of the number space.
        let newer = |last: u32| (1..1 << 31).contains(&number.wrapping_sub(last));
        if !self.last_ack.is_none_or(newer) {
            return false;
        }
        self.last_ack = Some(number);
        self.acknowledged(now, seq, out)
    }

    /// Whether a packet of this number was sent and is not acknowledged.
    pub(crate) fn is_unacknowledged(&self, seq: Seq) -> bool {
        self.sent.iter().any(|sent| sent.seq == seq)
    }

    /// Retransmits packets whose timeout has passed, and sends a due acknowledgement.
    pub(crate) fn tick(&mut self, now: Duration, route: Route, out: &mut Output) {
        let Some(session) = self.session else {
            return;
        };
        let mut sent = std::mem::take(&mut self.sent);
        for sent in sent.iter_mut().filter(|sent| sent.retransmit_at <= now) {
            sent.retries = sent.retries.saturating_add(1);
            sent.retransmit_at = now + self.ack_time.timeout(sent.retries, RESEND_BOUNDS);
            if sent.retries >= LARGE_RETRIES && sent.body.bytes() > FRAGMENT {
                self.paths.large.doubt(now);
            }
            self.transmit(route, session, sent.seq, &sent.body, out);
            out.counters.resent += 1;
            self.silent_since.get_or_insert(now);
        }
        self.sent = sent;
        if self.ack_at.is_some_and(|at| at <= now) {
            self.send_ack(session, route, out);
        }
    }

    fn send_ack(&mut self, session: u32, route: Route, out: &mut Output) {
        self.unacked = 0;
        self.ack_at = None;
        self.acks_sent = self.acks_sent.wrapping_add(1);
        let ack = Packet::Ack {
            ends: self.ends(),
            session,
            seq: self.next_receive.0,
            number: self.acks_sent,
        };
        out.send(route, ack);
    }

    /// Sends an acknowledgement that would be due later.
    pub(crate) fn acknowledge_now(&mut self, route: Route, out: &mut Output) {
        if let (Some(session), Some(_)) = (self.session, self.ack_at) {
            self.send_ack(session, route, out);
        }
    }
}
