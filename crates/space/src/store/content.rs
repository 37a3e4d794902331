//! The bytes of one file: which slots they lie in.
//!
//! A slot belongs to one file. A clone of a file's content (what a client is being sent) shares its
//! slots; a write into a slot that is shared goes into a slot of its own, so nothing changes under
//! a transmission.

use std::sync::Arc;

use super::error::StoreError;
use super::ledger::SlotRecord;
use super::slots::{Slot, SlotPool};

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    blocks: Vec<Option<Block>>,
}

/// A slot, and how many of its bytes were ever written for this file; the others read as zeros.
#[derive(Clone, Debug)]
struct Block {
    slot: Arc<Slot>,
    valid_bytes: u64,
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
    pub(super) fn from_records(
        slots: &SlotPool,
        size: u64,
        records: Vec<(Arc<Slot>, SlotRecord)>,
    ) -> Option<Self> {
        let slot_bytes = slots.slot_bytes();
        if size > slot_bytes.checked_mul(u64::from(slots.max_slots()))? {
            return None;
        }
        let mut blocks: Vec<Option<Block>> = Vec::new();
        blocks.resize_with(to_index(size.div_ceil(slot_bytes)), || None);
        for (slot, record) in records {
            let entry = blocks.get_mut(to_index(record.block.into()))?;
            if entry.is_some() || record.valid_bytes > slot_bytes {
                return None;
            }
            let valid_bytes = record.valid_bytes;
            *entry = Some(Block { slot, valid_bytes });
        }
        Some(Self { size, blocks })
    }

    /// What is to be written down of its slots, as this version.
    pub(super) fn records(&self, version: u64) -> impl Iterator<Item = (u32, SlotRecord)> {
        let blocks = (0..).zip(&self.blocks);
        blocks.filter_map(move |(index, block)| {
            let block = block.as_ref()?;
            let valid_bytes = block.valid_bytes;
            let record = SlotRecord {
                version,
                block: index,
                valid_bytes,
            };
            Some((block.slot.index(), record))
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
        self.blocks.iter().flatten().count()
    }

    /// Make room for a write. The caller fills the places returned, before anybody reads.
    pub(super) fn write(
        &mut self,
        slots: &SlotPool,
        offset: u64,
        length: u64,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let slot_bytes = slots.slot_bytes();
        let end = offset.checked_add(length).ok_or(StoreError::TooLarge)?;
        if end > slot_bytes * u64::from(slots.limit()) {
            return Err(StoreError::TooLarge);
        }
        if length == 0 {
            return Ok(Vec::new());
        }
        let (first, last) = (
            to_index(offset / slot_bytes),
            to_index((end - 1) / slot_bytes),
        );
        let is_exclusive = |at: usize| match self.blocks.get(at) {
            Some(Some(block)) => Arc::strong_count(&block.slot) == 1,
            _ => false,
        };
        let needed = (first..=last).filter(|at| !is_exclusive(*at)).count();
        let needed = u32::try_from(needed).map_err(|_| StoreError::TooLarge)?;
        let mut fresh = slots.allocate(needed).ok_or(StoreError::Full)?;
        if self.blocks.len() <= last {
            self.blocks.resize(last + 1, None);
        }
        let mut ranges = Vec::new();
        for (at, block) in self.blocks.iter_mut().enumerate().skip(first) {
            if at > last {
                break;
            }
            let start = at as u64 * slot_bytes;
            let from = offset.saturating_sub(start);
            let to = (end - start).min(slot_bytes);
            let block = exclusive_block(block, slots, &mut fresh)?;
            if from > block.valid_bytes {
                let gap = from - block.valid_bytes;
                let at = block.slot.start() + block.valid_bytes;
                slots.memory().zero(at, gap).map_err(StoreError::Host)?;
            }
            block.valid_bytes = block.valid_bytes.max(to);
            ranges.push((block.slot.start() + from, to - from));
        }
        self.size = self.size.max(end);
        Ok(ranges)
    }

    /// Cut it, or make it longer by bytes that are zeros and take no slot.
    pub(super) fn truncate(&mut self, slots: &SlotPool, size: u64) -> Result<(), StoreError> {
        let slot_bytes = slots.slot_bytes();
        if size > slot_bytes * u64::from(slots.limit()) {
            return Err(StoreError::TooLarge);
        }
        self.blocks.truncate(to_index(size.div_ceil(slot_bytes)));
        let start = size / slot_bytes * slot_bytes;
        if let Some(Some(block)) = self.blocks.get_mut(to_index(size / slot_bytes)) {
            block.valid_bytes = block.valid_bytes.min(size - start);
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
            let block = self.blocks.get(to_index(at / slot_bytes));
            let (start, valid_bytes) = match block {
                Some(Some(block)) => (block.slot.start(), block.valid_bytes),
                _ => (0, 0),
            };
            let bytes = valid_bytes.saturating_sub(within).min(length);
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
fn exclusive_block<'p>(
    block: &'p mut Option<Block>,
    slots: &SlotPool,
    fresh: &mut Vec<Arc<Slot>>,
) -> Result<&'p mut Block, StoreError> {
    let shared = match block {
        Some(block) => Arc::strong_count(&block.slot) > 1,
        None => true,
    };
    // Somebody who shared it may have let go since they were counted; then one is left over.
    if shared {
        if let Some(slot) = fresh.pop() {
            let valid_bytes = block.as_ref().map_or(0, |old| old.valid_bytes);
            if let Some(old) = block {
                let copied = slots
                    .memory()
                    .copy(old.slot.start(), slot.start(), valid_bytes);
                copied.map_err(StoreError::Host)?;
            }
            *block = Some(Block { slot, valid_bytes });
        }
    }
    block.as_mut().ok_or(StoreError::Full)
}

/// A place in the list of pieces. Sizes are at most those of a space, which fit.
fn to_index(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
