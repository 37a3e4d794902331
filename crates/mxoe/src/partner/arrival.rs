//! What a partner sends with a number: kept until it is its turn and somebody takes it.

use std::time::Duration;

use super::Partner;
use super::piece::{Arrived, Notified, Piece};
use crate::limits::{ACK, ACK_AT, EARLY, EARLY_BYTES, FRAGMENT};
use crate::seq::Seq;

impl Partner {
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
}
