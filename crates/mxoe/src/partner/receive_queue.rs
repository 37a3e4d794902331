//! The receive queue of a partner: numbered packets, until their turn comes and the program takes
//! them.

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
        let notification = self.store(now, ahead.into(), payload);
        self.skip_handled(now);
        notification
    }

    /// Returns what a place of the queue has.
    fn queued(&self, place: usize) -> Option<&Received> {
        self.receive_queue.get(place)?.as_ref()
    }

    /// Returns a place of the queue, which makes it as long.
    fn place(&mut self, place: usize) -> Option<&mut Option<Received>> {
        if self.receive_queue.len() <= place {
            self.receive_queue.resize_with(place + 1, || None);
        }
        self.receive_queue.get_mut(place)
    }

    /// Stores a payload at a place of the queue until the program takes it.
    fn store(&mut self, now: Duration, place: usize, payload: Payload<'_>) -> Option<Notification> {
        let in_order = place == 0;
        let known = self.queued(place).is_some();
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
                let part = (usize::from(total), usize::from(offset));
                if !self.store_fragment(place, value, part, bytes) {
                    self.ack_at = Some(now);
                }
            }
            // A duplicate that the program has not taken yet. It must not be acknowledged, but the
            // repeated acknowledgement of earlier packets tells the sender that this side is alive.
            Payload::Whole(_) | Payload::Notify(_) if known => self.ack_at = Some(now),
            Payload::Whole(received) => *self.place(place)? = Some(received),
            Payload::Notify(notification) => {
                *self.place(place)? = Some(Received::NotificationHandled);
                return Some(notification);
            }
        }
        None
    }

    /// Stores a fragment. Returns false for a duplicate.
    fn store_fragment(
        &mut self,
        place: usize,
        value: u64,
        (total, offset): (usize, usize),
        bytes: &[u8],
    ) -> bool {
        // One bit for each 4 KiB, however long the fragments are: a message may be sent again in shorter ones.
        let bits = |bytes: usize| u8::try_from((1u32 << bytes.div_ceil(FRAGMENT)) - 1);
        let all = bits(total).unwrap_or(u8::MAX);
        let carried = bits(bytes.len()).unwrap_or(u8::MAX) << (offset / FRAGMENT);
        let Some(place) = self.place(place) else {
            return false;
        };
        // The usual case needs no memory filled with zeros.
        if place.is_none() && bytes.len() == total {
            let data = bytes.to_vec();
            *place = Some(Received::Message { value, data });
            return true;
        }
        let known = place.get_or_insert_with(|| Received::Partial {
            value,
            data: vec![0; total],
            missing: all,
        });
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
        if !self.has_message() {
            return None;
        }
        let taken = self.receive_queue.front_mut()?.take()?;
        self.receive_queue_bytes -= taken.bytes();
        self.advance(now, 1);
        self.skip_handled(now);
        Some(taken)
    }

    /// Whether `take` would return a message.
    pub(crate) fn has_message(&self) -> bool {
        let next = self.queued(0);
        next.is_some_and(|next| !matches!(next, Received::Partial { missing: 1.., .. }))
    }

    fn skip_handled(&mut self, now: Duration) {
        while let Some(Received::NotificationHandled) = self.queued(0) {
            // MX before 1.2.5 needs the acknowledgement of a notification at once.
            self.advance(now, ACK_EVERY);
        }
    }

    /// Removes the first place of the queue, and schedules an acknowledgement.
    fn advance(&mut self, now: Duration, unacked: u32) {
        self.receive_queue.pop_front();
        self.next_receive = self.next_receive.next();
        self.unacked += unacked;
        if self.unacked >= ACK_EVERY {
            self.ack_at = Some(now);
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_DELAY);
        }
    }
}
