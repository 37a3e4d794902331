//! A partner: an endpoint elsewhere, and the numbered messages in both directions.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::event::Address;
use crate::hosts::{Out, Route};
use crate::limits::{ACK, ACK_AT, EARLY, FRAGMENT, PIPELINE, RESEND, SMALL, WINDOW};
use crate::seq::Seq;
use crate::wire::{Ends, Medium, Notify, Offer, Packet, Small};

/// A message that is to be sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) value: u64,
    pub(crate) data: Vec<u8>,
    /// Offered whatever its length.
    pub(crate) synchronous: bool,
    pub(crate) token: u64,
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

/// Sent, and not acknowledged.
#[derive(Debug)]
struct Sent {
    seq: Seq,
    body: Body,
    again: Duration,
    tries: u32,
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
    Notify {
        total: u32,
        region: u8,
        generation: u8,
    },
}

/// What a packet with a number brings.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    Whole(Arrived),
    Fragment {
        value: u64,
        total: u16,
        offset: u16,
        bytes: &'a [u8],
    },
}

#[derive(Debug)]
pub(crate) struct Partner {
    pub(crate) at: Address,
    own: u8,
    /// Which opening of the endpoint it is; none until somebody connected.
    pub(crate) session: Option<u32>,
    pub(crate) next_send: Option<Seq>,
    pub(crate) next_receive: Seq,
    sent: VecDeque<Sent>,
    pub(crate) waiting: VecDeque<Outgoing>,
    early: BTreeMap<Seq, Arrived>,
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
            next_send: None,
            next_receive: Seq::FIRST,
            sent: VecDeque::new(),
            waiting: VecDeque::new(),
            early: BTreeMap::new(),
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
        self.sent.len() < WINDOW
    }

    /// Give a body its number, and send it. False when there is no connection.
    pub(crate) fn send(&mut self, now: Duration, route: Route, body: Body, out: &mut Out) -> bool {
        let (Some(session), Some(seq)) = (self.session, self.next_send) else {
            return false;
        };
        self.next_send = Some(seq.next());
        self.transmit(route, session, seq, &body, out);
        self.sent.push_back(Sent {
            seq,
            body,
            again: now + RESEND,
            tries: 1,
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
                self.sent.drain(..count).map(|sent| sent.body).collect()
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

    /// Something with a number arrived. Returns whatever is in order now.
    pub(crate) fn arrived(&mut self, now: Duration, seq: Seq, piece: Piece<'_>) -> Vec<Arrived> {
        let mut ready = Vec::new();
        let Some(ahead) = seq.after(self.next_receive) else {
            return ready;
        };
        if ahead > 1 << 13 {
            // Here already: the acknowledgement was lost.
            self.owed_at = Some(now);
            return ready;
        }
        if ahead > EARLY {
            return ready;
        }
        self.put(seq, piece);
        while let Some(arrived) = self.next_whole() {
            ready.push(arrived);
        }
        for arrived in &ready {
            self.owed += 1;
            if matches!(arrived, Arrived::Notify { .. }) {
                // MX before 1.2.5 needs it at once.
                self.owed = ACK_AT;
            }
        }
        if self.owed >= ACK_AT {
            self.owed_at = Some(now);
        } else if self.owed > 0 && self.owed_at.is_none() {
            self.owed_at = Some(now + ACK);
        }
        ready
    }

    /// Keep a piece until it is its turn.
    fn put(&mut self, seq: Seq, piece: Piece<'_>) {
        let (value, total, offset, bytes) = match piece {
            Piece::Whole(arrived) => {
                self.early.entry(seq).or_insert(arrived);
                return;
            }
            Piece::Fragment {
                value,
                total,
                offset,
                bytes,
            } => (value, usize::from(total), usize::from(offset), bytes),
        };
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
            if let (true, Some(place)) = (same, place) {
                place.copy_from_slice(bytes);
                *missing &= !(1 << (offset / FRAGMENT));
            }
        }
    }

    /// Take the next one in order, if all of it is there.
    fn next_whole(&mut self) -> Option<Arrived> {
        let next = self.early.get(&self.next_receive)?;
        if matches!(next, Arrived::Partial { missing: 1.., .. }) {
            return None;
        }
        let next = self.early.remove(&self.next_receive);
        self.next_receive = self.next_receive.next();
        next
    }

    /// Send what is due again, and acknowledge. False when the peer does not answer any more.
    pub(crate) fn tick(&mut self, now: Duration, route: Route, tries: u32, out: &mut Out) -> bool {
        let Some(session) = self.session else {
            return true;
        };
        let mut sent = std::mem::take(&mut self.sent);
        let mut alive = true;
        for sent in sent.iter_mut().filter(|sent| sent.again <= now) {
            alive &= sent.tries < tries;
            sent.tries += 1;
            sent.again = now + RESEND;
            self.transmit(route, session, sent.seq, &sent.body, out);
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
        alive
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        let again = self.sent.iter().map(|sent| sent.again);
        again.chain(self.owed_at).min()
    }
}
