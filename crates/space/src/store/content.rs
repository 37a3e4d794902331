//! The content of one file: the slots that store its bytes.
//!
//! A slot belongs to one file. A clone of a file's content (for a transmission to a client) shares its slots. A write to a
//! shared slot goes to a new slot, so a transmission never sees a change.

use std::sync::Arc;

use super::error::StoreError;
use super::slots::{Slot, SlotPool, SlotRecord};

/// The bytes of a file, as blocks of one slot each.
#[derive(Clone, Debug, Default)]
pub struct Content {
    size: u64,
    blocks: Vec<Option<Block>>,
}

/// A slot, and how many of its bytes, counted from its start, belong to this file. The bytes behind them read as zeros.
#[derive(Clone, Debug)]
struct Block {
    slot: Arc<Slot>,
    valid_bytes: u64,
}

/// A contiguous range of a file's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Bytes in the slots' memory.
    Bytes {
        /// Offset in the slots' memory.
        at: u64,
        /// Number of bytes.
        length: u64,
    },
    /// A hole: bytes that were never written. They read as zeros.
    Zeros {
        /// Number of bytes.
        length: u64,
    },
}

impl Content {
    /// Restores the content of a file of `size` bytes from the slot records of the ledger. Returns `None` if the records
    /// are inconsistent.
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

    /// Returns the record of each slot for the ledger, with the index of the slot.
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

    /// Returns the length in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.blocks.iter().flatten().count()
    }

    /// Allocates the slots for a write and returns the ranges (offset and length) in the slots' memory. The caller writes
    /// the bytes there before it lets any reader in.
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
                slots
                    .memory()
                    .zero(at, gap)
                    .map_err(StoreError::HostMemory)?;
            }
            block.valid_bytes = block.valid_bytes.max(to);
            ranges.push((block.slot.start() + from, to - from));
        }
        self.size = self.size.max(end);
        Ok(ranges)
    }

    /// Changes the length. Added bytes read as zeros and take no slot.
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

    /// Returns the extents of up to `length` bytes from `offset`. They end at the end of the file.
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

/// Returns the block in a slot that no other content shares. If the slot is shared or missing, takes one of `fresh` and
/// copies the valid bytes.
fn exclusive_block<'p>(
    block: &'p mut Option<Block>,
    slots: &SlotPool,
    fresh: &mut Vec<Arc<Slot>>,
) -> Result<&'p mut Block, StoreError> {
    let shared = match block {
        Some(block) => Arc::strong_count(&block.slot) > 1,
        None => true,
    };
    // Another user of the slot may have dropped it after the caller counted shared slots. Then one fresh slot remains
    // unused and returns to the pool.
    if shared {
        if let Some(slot) = fresh.pop() {
            let valid_bytes = block.as_ref().map_or(0, |old| old.valid_bytes);
            if let Some(old) = block {
                let copied = slots
                    .memory()
                    .copy(old.slot.start(), slot.start(), valid_bytes);
                copied.map_err(StoreError::HostMemory)?;
            }
            *block = Some(Block { slot, valid_bytes });
        }
    }
    block.as_mut().ok_or(StoreError::Full)
}

/// Converts a block number to an index. A space's sizes fit into `usize`.
fn to_index(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
