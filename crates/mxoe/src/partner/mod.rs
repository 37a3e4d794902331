//! A partner: an endpoint elsewhere, and the numbered messages in both directions.

mod arrival;
mod piece;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::Address;
use crate::hosts::{Out, Route};
use crate::limits::{
    FRAGMENT, IDLE, PIPELINE, PROBE, RESEND, RESEND_FIRST, SMALL, WINDOW, WINDOW_BYTES,
};
use crate::retransmit::Retransmit;
use crate::seq::Seq;
use crate::wire::{Ends, Medium, Notify, Offer, Packet, Small};

pub(crate) use piece::{Arrived, Notified, Piece};

/// A message that is to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) value: u64,
    pub(crate) content: Content,
    /// Offered whatever its length.
    pub(crate) synchronous: bool,
    pub(crate) token: u64,
}

/// The bytes of a message.
#[derive(Debug)]
pub(crate) enum Content {
    /// All are here.
    Here(Vec<u8>),
    /// So many, when they are wanted.
    Later(u32),
}

/// What takes a number.
#[derive(Debug)]
pub(crate) enum Body {
    Message {
        value: u64,
        data: Vec<u8>,
        token: u64,
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

/// Sent, and not acknowledged.
#[derive(Debug)]
struct Sent {
    seq: Seq,
    body: Body,
    /// When it was sent, and when it is again.
    at: Duration,
    again: Duration,
    /// How often it was.
    tries: u32,
}

/// How soon a packet is sent again.
const RESENDS: (Duration, Duration) = (RESEND_FIRST, RESEND);

#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) at: Address,
    own: u8,
    /// Which opening of the endpoint it is; none until somebody connected.
    pub(crate) session: Option<u32>,
    /// The key it was connected to with; 0 if it connected.
    pub(crate) key: u32,
    pub(crate) next_send: Option<Seq>,
    pub(crate) next_receive: Seq,
    sent: VecDeque<Sent>,
    sent_bytes: usize,
    pub(crate) waiting: VecDeque<Outgoing>,
    /// What came and is not taken yet, or not its turn.
    early: BTreeMap<Seq, Arrived>,
    early_bytes: usize,
    /// How long it takes to acknowledge, and to send a block that is pulled.
    acknowledges: Retransmit,
    pub(crate) pulls: Retransmit,
    /// Regions it may pull, and pulls from it.
    pub(crate) owing: u32,
    /// When one of both last connected to the other, or tried.
    pub(crate) met: Duration,
    /// Since when it is asked in vain.
    silent: Option<Duration>,
    probe: Option<Duration>,
    /// The last question whether it is there.
    pub(crate) probe_number: Option<u8>,
    /// Received, and not acknowledged.
    owed: u32,
    owed_at: Option<Duration>,
    acks: u32,
    heard_ack: Option<u32>,
}

impl Partner {
    pub(crate) fn new(at: Address, own: u8) -> Self {
        Self {
            at,
            own,
            session: None,
            key: 0,
            next_send: None,
            next_receive: Seq::FIRST,
            sent: VecDeque::new(),
            sent_bytes: 0,
            waiting: VecDeque::new(),
            early: BTreeMap::new(),
            early_bytes: 0,
            acknowledges: Retransmit::default(),
            pulls: Retransmit::default(),
            owing: 0,
            met: Duration::ZERO,
            silent: None,
            probe: None,
            probe_number: None,
            owed: 0,
            owed_at: None,
            acks: 0,
            heard_ack: None,
        }
    }

    /// Forget the connection. Returns what was sent on it or waited for it: the bodies, and the
    /// messages without a number.
    pub(crate) fn reset(&mut self) -> (Vec<Body>, VecDeque<Outgoing>) {
        let next = self.next_receive.next_connection();
        let fresh = Self {
            next_receive: next,
            acks: self.acks,
            met: self.met,
            ..Self::new(self.at, self.own)
        };
        let old = std::mem::replace(self, fresh);
        let bodies = old.sent.into_iter().map(|sent| sent.body).collect();
        (bodies, old.waiting)
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends {
            to: self.at.endpoint,
            from: self.own,
        }
    }

    /// Whether one more may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < WINDOW && self.sent_bytes < WINDOW_BYTES
    }

    /// Whether everything that was to be sent was acknowledged.
    pub(crate) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.waiting.is_empty()
    }

    /// It is alive.
    pub(crate) fn heard(&mut self) {
        self.silent = None;
        self.probe = None;
    }

    /// Give a body its number, and send it. False when there is no connection.
    pub(crate) fn send(&mut self, now: Duration, route: Route, body: Body, out: &mut Out) -> bool {
        let (Some(session), Some(seq)) = (self.session, self.next_send) else {
            return false;
        };
        self.next_send = Some(seq.next());
        self.transmit(route, session, seq, &body, out);
        self.sent_bytes += body.bytes();
        self.sent.push_back(Sent {
            seq,
            body,
            at: now,
            again: now + self.acknowledges.wait(0, RESENDS),
            tries: 0,
        });
        true
    }

    /// Send the packets of a body. Each acknowledges what arrived.
    fn transmit(&mut self, route: Route, session: u32, seq: Seq, body: &Body, out: &mut Out) {
        self.owed = 0;
        self.owed_at = None;
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
            Body::Message { value, data, .. } if data.len() <= SMALL => {
                out.send(route, Packet::Small(head(*value, data)));
            }
            Body::Message { value, data, .. } => {
                // At most 32 KiB.
                let total = u16::try_from(data.len()).unwrap_or_default();
                for (number, piece) in (0u16..).zip(data.chunks(FRAGMENT)) {
                    let medium = Medium {
                        head: head(*value, piece),
                        total,
                        offset: number << PIPELINE,
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

    /// Everything below a number has arrived there. Returns what was waiting for that.
    pub(crate) fn acknowledged(&mut self, now: Duration, seq: Seq) -> Vec<Body> {
        let first = self.sent.front().map(|sent| sent.seq);
        let count = first.and_then(|first| seq.after(first)).map(usize::from);
        match count {
            Some(count) if count <= self.sent.len() => {
                let newest = count.checked_sub(1).and_then(|at| self.sent.get(at));
                // Since it was sent first: too long rather than too short, if it was sent again.
                if let Some(sent) = newest {
                    self.acknowledges.answered(now.saturating_sub(sent.at));
                }
                let bodies: Vec<_> = self.sent.drain(..count).map(|sent| sent.body).collect();
                self.sent_bytes -= bodies.iter().map(Body::bytes).sum::<usize>();
                bodies
            }
            _ => Vec::new(),
        }
    }

    /// An acknowledgement of its own; older ones than the last say nothing.
    pub(crate) fn heard_ack(&mut self, now: Duration, seq: Seq, number: u32) -> Vec<Body> {
        // Within half of the numbers that there are.
        let newer = |last: u32| (1..1 << 31).contains(&number.wrapping_sub(last));
        if !self.heard_ack.is_none_or(newer) {
            return Vec::new();
        }
        self.heard_ack = Some(number);
        self.acknowledged(now, seq)
    }

    /// Whether something of this number was sent and is not acknowledged.
    pub(crate) fn awaits(&self, seq: Seq) -> bool {
        self.sent.iter().any(|sent| sent.seq == seq)
    }

    /// Send what is due again, and acknowledge.
    pub(crate) fn tick(&mut self, now: Duration, route: Route, out: &mut Out) {
        let Some(session) = self.session else {
            return;
        };
        let mut sent = std::mem::take(&mut self.sent);
        for sent in sent.iter_mut().filter(|sent| sent.again <= now) {
            sent.tries = sent.tries.saturating_add(1);
            sent.again = now + self.acknowledges.wait(sent.tries, RESENDS);
            self.transmit(route, session, sent.seq, &sent.body, out);
            out.counters.resent += 1;
            self.silent.get_or_insert(now);
        }
        self.sent = sent;
        if self.owed_at.is_some_and(|at| at <= now) {
            self.owed = 0;
            self.owed_at = None;
            self.acks = self.acks.wrapping_add(1);
            let ack = Packet::Ack {
                ends: self.ends(),
                session,
                seq: self.next_receive.0,
                number: self.acks,
            };
            out.send(route, ack);
        }
    }

    /// Whether it is to be asked now whether it is still there: it is silent, and more so if it owes
    /// something or has not answered.
    pub(crate) fn must_probe(&mut self, now: Duration) -> bool {
        if self.session.is_none() {
            self.probe = None;
            return false;
        }
        let pause = match self.owing > 0 || self.silent.is_some() {
            true => PROBE,
            false => IDLE,
        };
        let due = self.probe.map_or(now + pause, |due| due.min(now + pause));
        self.probe = Some(due);
        if due > now {
            return false;
        }
        self.probe = Some(now + PROBE);
        self.silent.get_or_insert(now);
        true
    }

    /// Whether it has been asked in vain for so long.
    pub(crate) fn is_lost(&self, now: Duration, patience: Duration) -> bool {
        self.silent
            .is_some_and(|since| now.saturating_sub(since) >= patience)
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let again = self.sent.iter().map(|sent| sent.again).min();
        [again, self.owed_at, self.probe]
            .into_iter()
            .flatten()
            .min()
    }
}
