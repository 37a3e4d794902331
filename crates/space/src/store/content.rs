//! The bytes of one file: which slots they lie in.
//!
//! A slot belongs to one file. A clone of a file's content (what a client is being sent) shares its
//! slots; a write into a slot that is shared goes into a slot of its own, so nothing changes under
//! a transmission.

use std::sync::Arc;

use super::error::StoreError;
use super::slots::{Slot, SlotRecord, Slots};

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    pieces: Vec<Option<Piece>>,
}

/// A slot, and how many of its bytes were ever written for this file; the others read as zeros.
#[derive(Clone, Debug)]
struct Piece {
    slot: Arc<Slot>,
    valid: u64,
}

/// Bytes that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// In memory.
    Bytes {
        /// Where.
        at: u64,
        /// How many.
        length: u64,
    },
    /// Nowhere: they were never written.
    Zeros {
        /// How many.
        length: u64,
    },
}

impl Content {
    /// What was written down of it: slots, each with its place among the file's, and how many of its
    /// bytes were written; none if that makes no sense.
    pub(super) fn restored(
        slots: &Slots,
        size: u64,
        written: Vec<(Arc<Slot>, SlotRecord)>,
    ) -> Option<Self> {
        let unit = slots.slot_bytes();
        if size > unit.checked_mul(u64::from(slots.most()))? {
            return None;
        }
        let mut pieces: Vec<Option<Piece>> = Vec::new();
        pieces.resize_with(index(size.div_ceil(unit)), || None);
        for (slot, record) in written {
            let place = pieces.get_mut(index(record.index.into()))?;
            if place.is_some() || record.valid > unit {
                return None;
            }
            let valid = record.valid;
            *place = Some(Piece { slot, valid });
        }
        Some(Self { size, pieces })
    }

    /// What is to be written down of its slots, as this version.
    pub(super) fn written(&self, version: u64) -> impl Iterator<Item = (u32, SlotRecord)> {
        let pieces = (0..).zip(&self.pieces);
        pieces.filter_map(move |(index, piece)| {
            let piece = piece.as_ref()?;
            let valid = piece.valid;
            let record = SlotRecord {
                version,
                index,
                valid,
            };
            Some((piece.slot.index(), record))
        })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// How many slots it has.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.pieces.iter().flatten().count()
    }

    /// Make room for a write. The caller fills the places returned, before anybody reads.
    pub(super) fn write(
        &mut self,
        slots: &Slots,
        offset: u64,
        length: u64,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let unit = slots.slot_bytes();
        let end = offset.checked_add(length).ok_or(StoreError::TooLarge)?;
        if end > unit * u64::from(slots.limit()) {
            return Err(StoreError::TooLarge);
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        let (first, last) = (index(offset / unit), index((end - 1) / unit));
        let own = |at: usize| match self.pieces.get(at) {
            Some(Some(piece)) => Arc::strong_count(&piece.slot) == 1,
            _ => false,
        };
        let missing = (first..=last).filter(|at| !own(*at)).count();
        let missing = u32::try_from(missing).map_err(|_| StoreError::TooLarge)?;
        let mut fresh = slots.take(missing).ok_or(StoreError::Full)?;
        if self.pieces.len() <= last {
            self.pieces.resize(last + 1, None);
        }
        let mut places = Vec::new();
        for (at, piece) in self.pieces.iter_mut().enumerate().skip(first) {
            if at > last {
                break;
            }
            let start = at as u64 * unit;
            let from = offset.saturating_sub(start);
            let to = (end - start).min(unit);
            let piece = owned(piece, slots, &mut fresh)?;
            if from > piece.valid {
                let gap = from - piece.valid;
                let at = piece.slot.start() + piece.valid;
                slots.memory().zero(at, gap).map_err(StoreError::Host)?;
            }
            piece.valid = piece.valid.max(to);
            places.push((piece.slot.start() + from, to - from));
        }
        self.size = self.size.max(end);
        Ok(places)
    }

    /// Cut it, or make it longer by bytes that are zeros and take no slot.
    pub(super) fn truncate(&mut self, slots: &Slots, size: u64) -> Result<(), StoreError> {
        let unit = slots.slot_bytes();
        if size > unit * u64::from(slots.limit()) {
            return Err(StoreError::TooLarge);
        }
        self.pieces.truncate(index(size.div_ceil(unit)));
        let start = size / unit * unit;
        if let Some(Some(piece)) = self.pieces.get_mut(index(size / unit)) {
            piece.valid = piece.valid.min(size - start);
        }
        self.size = size;
        Ok(())
    }

    /// Where up to `length` bytes are, as far as there are any.
    #[must_use]
    pub fn read(&self, slot_bytes: u64, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.size);
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end {
            let within = at % slot_bytes;
            let length = (slot_bytes - within).min(end - at);
            let piece = self.pieces.get(index(at / slot_bytes));
            let (start, valid) = match piece {
                Some(Some(piece)) => (piece.slot.start(), piece.valid),
                _ => (0, 0),
            };
            let bytes = valid.saturating_sub(within).min(length);
            if bytes > 0 {
                let at = start + within;
                extents.push(Extent::Bytes { at, length: bytes });
            }
            if bytes < length {
                let length = length - bytes;
                extents.push(Extent::Zeros { length });
            }
            at += length;
        }
        extents
    }
}

/// This piece in a slot that nobody shares.
fn owned<'p>(
    piece: &'p mut Option<Piece>,
    slots: &Slots,
    fresh: &mut Vec<Arc<Slot>>,
) -> Result<&'p mut Piece, StoreError> {
    let shared = match piece {
        Some(piece) => Arc::strong_count(&piece.slot) > 1,
        None => true,
    };
    // Somebody who shared it may have let go since they were counted; then one is left over.
    if shared {
        if let Some(slot) = fresh.pop() {
            let valid = piece.as_ref().map_or(0, |old| old.valid);
            if let Some(old) = piece {
                let copied = slots.memory().copy(old.slot.start(), slot.start(), valid);
                copied.map_err(StoreError::Host)?;
            }
            *piece = Some(Piece { slot, valid });
        }
    }
    piece.as_mut().ok_or(StoreError::Full)
}

/// A place in the list of pieces. Sizes are at most those of a space, which fit.
fn index(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
