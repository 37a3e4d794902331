//! A partner: a remote endpoint, and the numbered messages in both directions.

mod path;
mod paths;
mod payload;
mod receive_queue;

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::{Address, Code};
use crate::limits::{
    FRAGMENT, IDLE_PROBE_INTERVAL, LARGE_PIPELINE, LARGE_RETRIES, MAX_SMALL, PIPELINE,
    PROBE_INTERVAL, RESEND_TIMEOUT, RESEND_TIMEOUT_MIN, SEND_WINDOW, SEND_WINDOW_BYTES,
};
use crate::output::{Output, Route};
use crate::retransmit::ResponseTime;
use crate::seq::Seq;
use crate::wire::{Ends, Medium, Notify, Offer, Packet, Small};

pub(crate) use path::Path;
pub(crate) use paths::Paths;
pub(crate) use payload::{Notification, Payload, Received};

/// A message to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) value: u64,
    pub(crate) content: Content,
    /// Whether the message is offered whatever its length.
    pub(crate) synchronous: bool,
    /// `None` if the program need not know when the send has ended.
    pub(crate) token: Option<u64>,
}

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Content {
    /// The program supplied the whole message.
    Buffered(Vec<u8>),
    /// The program supplies this many bytes when the receiver pulls them.
    Streamed(u32),
}

impl Content {
    pub(crate) fn length(&self) -> u32 {
        match self {
            Self::Buffered(data) => Self::length_of(data),
            Self::Streamed(length) => *length,
        }
    }

    /// Returns the length of a whole message, which `Node::send` has checked.
    fn length_of(data: &[u8]) -> u32 {
        u32::try_from(data.len()).unwrap_or(u32::MAX)
    }
}

/// The content of a sequence number that this side sends.
#[derive(Debug)]
pub(crate) enum Body {
    Message {
        value: u64,
        data: Vec<u8>,
        token: Option<u64>,
    },
    Offer {
        value: u64,
        length: u32,
        region: u8,
        generation: u8,
    },
    Notify {
        total: u32,
        region: u8,
        generation: u8,
    },
}

impl Body {
    fn bytes(&self) -> usize {
        match self {
            Self::Message { data, .. } => data.len(),
            Self::Offer { .. } | Self::Notify { .. } => 0,
        }
    }
}

/// A packet that was sent and is not acknowledged.
#[derive(Debug)]
struct Sent {
    seq: Seq,
    body: Body,
    /// When it was sent first, and when it is sent again.
    sent_at: Duration,
    retransmit_at: Duration,
    /// Number of retransmissions.
    retries: u32,
}

/// Bounds of the retransmission timeout.
const RESEND_BOUNDS: (Duration, Duration) = (RESEND_TIMEOUT_MIN, RESEND_TIMEOUT);

#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) address: Address,
    local_endpoint: u8,
    /// The session of the remote endpoint, or `None` without a connection.
    pub(crate) session: Option<u32>,
    /// The key of this side's connect, or 0 if the partner connected.
    pub(crate) key: u32,
    pub(crate) next_send: Option<Seq>,
    pub(crate) next_receive: Seq,
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    pub(crate) waiting: VecDeque<Outgoing>,
    /// Packets that the program has not taken, or that arrived ahead of a missing one. The first place is that of `next_receive`.
    receive_queue: VecDeque<Option<Received>>,
    receive_queue_bytes: usize,
    /// Response times of acknowledgements, and of blocks of pulls.
    ack_time: ResponseTime,
    pub(crate) pull_time: ResponseTime,
    /// Number of regions that the partner may pull, and of pulls from the partner.
    pub(crate) open_transfers: u32,
    /// When either side last tried to connect to the other.
    pub(crate) last_connect: Duration,
    /// Time of the first retransmission or probe since the partner last answered.
    silent_since: Option<Duration>,
    probe_at: Option<Duration>,
    /// The number of the last probe.
    pub(crate) probe_number: Option<u8>,
    /// Number of packets that were received and not acknowledged.
    unacked: u32,
    ack_at: Option<Duration>,
    acks_sent: u32,
    last_ack: Option<u32>,
    pub(crate) paths: Paths,
    /// Its connect made the connection, and it does not seem to know that yet: the key that it presented as its own. See `confirmation`.
    pub(crate) unconfirmed: Option<Option<u32>>,
}

impl Partner {
    pub(crate) fn new(address: Address, local_endpoint: u8) -> Self {
        Self {
            address,
            local_endpoint,
            session: None,
            key: 0,
            next_send: None,
            next_receive: Seq::FIRST,
            sent: VecDeque::new(),
            sent_bytes: 0,
            waiting: VecDeque::new(),
            receive_queue: VecDeque::new(),
            receive_queue_bytes: 0,
            ack_time: ResponseTime::default(),
            pull_time: ResponseTime::default(),
            open_transfers: 0,
            last_connect: Duration::ZERO,
            silent_since: None,
            probe_at: None,
            probe_number: None,
            unacked: 0,
            ack_at: None,
            acks_sent: 0,
            last_ack: None,
            paths: Paths::default(),
            unconfirmed: None,
        }
    }

    /// Drops the connection. Returns its unacknowledged packets, and the messages that had no
    /// number yet.
    pub(crate) fn reset(&mut self) -> (Vec<Body>, VecDeque<Outgoing>) {
        let next = self.next_receive.next_connection();
        let fresh = Self {
            next_receive: next,
            acks_sent: self.acks_sent,
            last_connect: self.last_connect,
            ..Self::new(self.address, self.local_endpoint)
        };
        let old = std::mem::replace(self, fresh);
        let bodies = old.sent.into_iter().map(|sent| sent.body).collect();
        (bodies, old.waiting)
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends {
            to: self.address.endpoint,
            from: self.local_endpoint,
        }
    }

    /// Whether the send window has room for one more message.
    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < SEND_WINDOW && self.sent_bytes < SEND_WINDOW_BYTES
    }

    /// Whether the partner has acknowledged every message.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.waiting.is_empty()
    }

    /// Notes that the partner answered.
    pub(crate) fn mark_alive(&mut self) {
        self.silent_since = None;
        self.probe_at = None;
    }

    /// The next [`must_probe`](Self::must_probe) returns true.
    pub(crate) fn probe_at_once(&mut self, now: Duration) {
        self.silent_since = Some(now);
        self.probe_at = Some(now);
    }

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
    }

    /// Whether the endpoint must probe the partner now. The interval is shorter while a transfer or
    /// an answer is outstanding.
    pub(crate) fn must_probe(&mut self, now: Duration) -> bool {
        if self.session.is_none() {
            self.probe_at = None;
            return false;
        }
        let pause = match self.open_transfers > 0 || self.silent_since.is_some() {
            true => PROBE_INTERVAL,
            false => IDLE_PROBE_INTERVAL,
        };
        let due = self
            .probe_at
            .map_or(now + pause, |due| due.min(now + pause));
        self.probe_at = Some(due);
        if due > now {
            return false;
        }
        self.probe_at = Some(now + PROBE_INTERVAL);
        self.silent_since.get_or_insert(now);
        true
    }

    /// Whether the partner has not answered for `peer_timeout`.
    pub(crate) fn is_lost(&self, now: Duration, peer_timeout: Duration) -> bool {
        self.silent_since
            .is_some_and(|since| now.saturating_sub(since) >= peer_timeout)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let retransmit_at = self.sent.iter().map(|sent| sent.retransmit_at).min();
        let probe_path_at = self.paths.deadline();
        [retransmit_at, self.ack_at, self.probe_at, probe_path_at]
            .into_iter()
            .flatten()
            .min()
    }
}
