//! The receive queue of a partner: numbered packets, until their turn comes and the program takes
//! them.

use std::collections::btree_map::Entry;
use std::time::Duration;

use super::Partner;
use super::payload::{Notification, Payload, Received};
use crate::limits::{ACK_DELAY, ACK_EVERY, FRAGMENT, RECEIVE_WINDOW, RECEIVE_WINDOW_BYTES};
use crate::seq::Seq;

impl Partner {
    /// Receives a numbered packet. Returns a notification that is new: it ends its send at once,
    /// even if the program has not taken the messages before it.
    pub(crate) fn receive(
        &mut self,
        now: Duration,
        seq: Seq,
        payload: Payload<'_>,
    ) -> Option<Notification> {
        let ahead = seq.after(self.next_receive)?;
        if ahead > 1 << 13 {
            // A duplicate: the acknowledgement was lost, so send it again.
            self.ack_at = Some(now);
            return None;
        }
        if ahead > RECEIVE_WINDOW {
            return None;
        }
        let notification = self.store(now, seq, payload);
        self.skip_handled(now);
        notification
    }

    /// Stores a payload until the program takes it.
    fn store(&mut self, now: Duration, seq: Seq, payload: Payload<'_>) -> Option<Notification> {
        let in_order = seq == self.next_receive;
        let known = self.receive_queue.contains_key(&seq);
        let bytes = match &payload {
            Payload::Whole(received) => received.bytes(),
            Payload::Fragment { total, .. } => usize::from(*total),
            Payload::Notify(_) => 0,
        };
        if !known && !in_order && self.receive_queue_bytes + bytes > RECEIVE_WINDOW_BYTES {
            return None;
        }
        if !known {
            self.receive_queue_bytes += bytes;
        }
        match payload {
            Payload::Fragment {
                value,
                total,
                offset,
                bytes,
            } => {
                let place = (usize::from(total), usize::from(offset));
                if !self.store_fragment(seq, value, place, bytes) {
                    self.ack_at = Some(now);
                }
            }
            // A duplicate that the program has not taken yet. It must not be acknowledged, but the
            // repeated acknowledgement of earlier packets tells the sender that this side is alive.
            Payload::Whole(_) | Payload::Notify(_) if known => self.ack_at = Some(now),
            Payload::Whole(received) => {
                self.receive_queue.insert(seq, received);
            }
            Payload::Notify(notification) => {
                self.receive_queue
                    .insert(seq, Received::NotificationHandled);
                return Some(notification);
            }
        }
        None
    }

    /// Stores a fragment. Returns false for a duplicate.
    fn store_fragment(
        &mut self,
        seq: Seq,
        value: u64,
        place: (usize, usize),
        bytes: &[u8],
    ) -> bool {
        let (total, offset) = place;
        // One bit for each 4 KiB, however long the fragments are: a message may be sent again in shorter ones.
        let bits = |bytes: usize| u8::try_from((1u32 << bytes.div_ceil(FRAGMENT)) - 1);
        let all = bits(total).unwrap_or(u8::MAX);
        let carried = bits(bytes.len()).unwrap_or(u8::MAX) << (offset / FRAGMENT);
        let known = match self.receive_queue.entry(seq) {
            // The usual case needs no memory filled with zeros.
            Entry::Vacant(vacant) if bytes.len() == total => {
                vacant.insert(Received::Message {
                    value,
                    data: bytes.to_vec(),
                });
                return true;
            }
            entry => entry.or_insert_with(|| Received::Partial {
                value,
                data: vec![0; total],
                missing: all,
            }),
        };
        // All fragments of a message must agree on its length and value; others are dropped.
        if let Received::Partial {
            value: its_value,
            data,
            missing,
        } = known
        {
            let same = *its_value == value && data.len() == total;
            let target = data.get_mut(offset..offset + bytes.len());
            if let (true, true, Some(target)) = (same, *missing & carried != 0, target) {
                target.copy_from_slice(bytes);
                *missing &= !carried;
                return true;
            }
        }
        false
    }

    /// Takes the next message in order if it is complete. From then on, the partner's packet counts
    /// as acknowledged.
    pub(crate) fn take(&mut self, now: Duration) -> Option<Received> {
        let next = self.receive_queue.get(&self.next_receive)?;
        if matches!(next, Received::Partial { missing: 1.., .. }) {
            return None;
        }
        let taken = self.receive_queue.remove(&self.next_receive)?;
        self.receive_queue_bytes -= taken.bytes();
        self.advance(now, 1);
        self.skip_handled(now);
        Some(taken)
    }

    /// Whether `take` would return a message.
    pub(crate) fn has_message(&self) -> bool {
        let next = self.receive_queue.get(&self.next_receive);
        next.is_some_and(|next| !matches!(next, Received::Partial { missing: 1.., .. }))
    }

    fn skip_handled(&mut self, now: Duration) {
        while let Some(Received::NotificationHandled) = self.receive_queue.get(&self.next_receive) {
            self.receive_queue.remove(&self.next_receive);
            // MX before 1.2.5 needs the acknowledgement of a notification at once.
            self.advance(now, ACK_EVERY);
        }
    }

    /// Advances the expected number, and schedules an acknowledgement.
    fn advance(&mut self, now: Duration, unacked: u32) {
        self.next_receive = self.next_receive.next();
        self.unacked += unacked;
        if self.unacked >= ACK_EVERY {
            self.ack_at = Some(now);
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_DELAY);
        }
    }
}
