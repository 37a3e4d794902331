//! A partner: a remote endpoint, and the numbered messages in both directions.

mod path;
mod paths;
mod payload;
mod receive_queue;
mod send_queue;

use std::collections::VecDeque;
use std::time::Duration;

use crate::event::Address;
use crate::limits::{IDLE_PROBE_INTERVAL, PROBE_INTERVAL, SEND_WINDOW, SEND_WINDOW_BYTES};
use crate::retransmit::ResponseTime;
use crate::seq::Seq;
use crate::wire::Ends;

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

#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) address: Address,
    local_endpoint: u8,
    /// The session of the remote endpoint, or `None` without a connection.
    pub(crate) session: Option<u32>,
    /// The session of the local endpoint when the connection was made: another program may have opened the endpoint since.
    pub(crate) own_session: u32,
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
            own_session: 0,
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

    /// Notes a connection between two sessions, and the number of the first packet to be sent on it.
    pub(crate) fn connected(&mut self, session: u32, own_session: u32, start: Seq) {
        self.session = Some(session);
        self.own_session = own_session;
        self.next_send = Some(start);
    }

    /// Whether a packet for this session of the local endpoint belongs to the connection.
    pub(crate) fn accepts(&self, own_session: u32) -> bool {
        self.session.is_some() && self.own_session == own_session
    }

    /// Whether a connect from this session, or the reply to one, belongs to the connection: the partner expects a number of it.
    pub(crate) fn has_connection(&self, session: u32, expected: Seq) -> bool {
        let next = self.next_send;
        self.session == Some(session) && next.is_some_and(|next| next.same_connection(expected))
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
