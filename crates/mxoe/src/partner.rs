//! A partner: an endpoint elsewhere, and the numbered messages in both directions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::Address;
use crate::hosts::{Out, Route};
use crate::limits::{
    ACK, ACK_AT, EARLY, EARLY_BYTES, FRAGMENT, IDLE, PIPELINE, PROBE, RESEND, SMALL, WINDOW,
    WINDOW_BYTES,
};
use crate::seq::Seq;
use crate::wire::{Ends, Medium, Notify, Offer, Packet, Small};

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
    again: Duration,
}

/// What came with a number.
#[derive(Debug)]
pub(crate) enum Arrived {
    Message {
        value: u64,
        data: Vec<u8>,
    },
    /// A message of which fragments are missing: a bit for each.
    Partial {
        value: u64,
        data: Vec<u8>,
        missing: u8,
    },
    Offer {
        value: u64,
        length: u32,
        region: u8,
        generation: u8,
        offset: u16,
    },
    /// A notification, which was heeded when it came.
    Heeded,
}

/// A notification: the partner pulled so much of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notified {
    pub(crate) total: u32,
    pub(crate) region: u8,
    pub(crate) generation: u8,
}

/// What a packet with a number brings.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    Whole(Arrived),
    Notify(Notified),
    Fragment {
        value: u64,
        total: u16,
        offset: u16,
        bytes: &'a [u8],
    },
}

impl Arrived {
    /// Bytes that are kept of it.
    fn bytes(&self) -> usize {
        match self {
            Self::Message { data, .. } | Self::Partial { data, .. } => data.len(),
            Self::Offer { .. } | Self::Heeded => 0,
        }
    }
}

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
    /// Regions it may pull, and pulls from it.
    pub(crate) owing: u32,
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
            owing: 0,
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
            again: now + RESEND,
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
    pub(crate) fn acknowledged(&mut self, seq: Seq) -> Vec<Body> {
        let first = self.sent.front().map(|sent| sent.seq);
        let count = first.and_then(|first| seq.after(first)).map(usize::from);
        match count {
            Some(count) if count <= self.sent.len() => {
                let bodies: Vec<_> = self.sent.drain(..count).map(|sent| sent.body).collect();
                self.sent_bytes -= bodies.iter().map(Body::bytes).sum::<usize>();
                bodies
            }
            _ => Vec::new(),
        }
    }

    /// An acknowledgement of its own; older ones than the last say nothing.
    pub(crate) fn heard_ack(&mut self, seq: Seq, number: u32) -> Vec<Body> {
        // Within half of the numbers that there are.
        let newer = |last: u32| (1..1 << 31).contains(&number.wrapping_sub(last));
        if !self.heard_ack.is_none_or(newer) {
            return Vec::new();
        }
        self.heard_ack = Some(number);
        self.acknowledged(seq)
    }

    /// Whether something of this number was sent and is not acknowledged.
    pub(crate) fn awaits(&self, seq: Seq) -> bool {
        self.sent.iter().any(|sent| sent.seq == seq)
    }

    /// Something with a number arrived. Returns a notification that is new: it ends what waits for
    /// it at once, even if messages before it are not taken yet.
    pub(crate) fn arrived(
        &mut self,
        now: Duration,
        seq: Seq,
        piece: Piece<'_>,
    ) -> Option<Notified> {
        let ahead = seq.after(self.next_receive)?;
        if ahead > 1 << 13 {
            // Here already: the acknowledgement was lost.
            self.owed_at = Some(now);
            return None;
        }
        if ahead > EARLY {
            return None;
        }
        let notified = self.put(now, seq, piece);
        self.pass_heeded(now);
        notified
    }

    /// Keep a piece until it is taken.
    fn put(&mut self, now: Duration, seq: Seq, piece: Piece<'_>) -> Option<Notified> {
        let next = seq == self.next_receive;
        let known = self.early.contains_key(&seq);
        let bytes = match &piece {
            Piece::Whole(arrived) => arrived.bytes(),
            Piece::Fragment { total, .. } => usize::from(*total),
            Piece::Notify(_) => 0,
        };
        if !known && !next && self.early_bytes + bytes > EARLY_BYTES {
            return None;
        }
        if !known {
            self.early_bytes += bytes;
        }
        match piece {
            Piece::Fragment {
                value,
                total,
                offset,
                bytes,
            } => {
                let place = (usize::from(total), usize::from(offset));
                if !self.put_fragment(seq, value, place, bytes) {
                    self.owed_at = Some(now);
                }
            }
            // It came again: what is kept here is not acknowledged, but its sender shall know that
            // somebody is here.
            Piece::Whole(_) | Piece::Notify(_) if known => self.owed_at = Some(now),
            Piece::Whole(arrived) => {
                self.early.insert(seq, arrived);
            }
            Piece::Notify(notified) => {
                self.early.insert(seq, Arrived::Heeded);
                return Some(notified);
            }
        }
        None
    }

    /// False when it is here already.
    fn put_fragment(&mut self, seq: Seq, value: u64, place: (usize, usize), bytes: &[u8]) -> bool {
        let (total, offset) = place;
        let bit = 1 << (offset / FRAGMENT);
        let count = total.div_ceil(FRAGMENT);
        let all = u8::try_from((1u32 << count) - 1).unwrap_or(u8::MAX);
        let known = self.early.entry(seq).or_insert_with(|| Arrived::Partial {
            value,
            data: vec![0; total],
            missing: all,
        });
        // Fragments of one message say the same of it; others are nonsense.
        if let Arrived::Partial {
            value: its_value,
            data,
            missing,
        } = known
        {
            let same = *its_value == value && data.len() == total;
            let place = data.get_mut(offset..offset + bytes.len());
            if let (true, true, Some(place)) = (same, *missing & bit != 0, place) {
                place.copy_from_slice(bytes);
                *missing &= !bit;
                return true;
            }
        }
        false
    }

    /// Take the next message in order, if all of it is here. It is acknowledged from then on.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Arrived> {
        let next = self.early.get(&self.next_receive)?;
        if matches!(next, Arrived::Partial { missing: 1.., .. }) {
            return None;
        }
        let taken = self.early.remove(&self.next_receive)?;
        self.early_bytes -= taken.bytes();
        self.advance(now, 1);
        self.pass_heeded(now);
        Some(taken)
    }

    /// Whether there is something to take.
    pub(crate) fn has_message(&self) -> bool {
        let next = self.early.get(&self.next_receive);
        next.is_some_and(|next| !matches!(next, Arrived::Partial { missing: 1.., .. }))
    }

    fn pass_heeded(&mut self, now: Duration) {
        while let Some(Arrived::Heeded) = self.early.get(&self.next_receive) {
            self.early.remove(&self.next_receive);
            // MX before 1.2.5 needs it at once.
            self.advance(now, ACK_AT);
        }
    }

    /// One more is taken, and an acknowledgement due.
    fn advance(&mut self, now: Duration, owed: u32) {
        self.next_receive = self.next_receive.next();
        self.owed += owed;
        if self.owed >= ACK_AT {
            self.owed_at = Some(now);
        } else if self.owed_at.is_none() {
            self.owed_at = Some(now + ACK);
        }
    }

    /// Send what is due again, and acknowledge.
    pub(crate) fn tick(&mut self, now: Duration, route: Route, out: &mut Out) {
        let Some(session) = self.session else {
            return;
        };
        let mut sent = std::mem::take(&mut self.sent);
        for sent in sent.iter_mut().filter(|sent| sent.again <= now) {
            sent.again = now + RESEND;
            self.transmit(route, session, sent.seq, &sent.body, out);
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
