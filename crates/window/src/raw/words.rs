//! An array of words that several sides change.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::mapping::{Access, Mapping};

/// Consecutive 32-bit words of shared memory.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    first: NonNull<u32>,
    count: u32,
    _mapping: Arc<Mapping>,
}

// SAFETY: the words are only reached through atomics; see the module documentation.
unsafe impl Send for Words {}

impl Words {
    /// Returns `count` words from `offset`, if they lie inside and are aligned.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64, count: u32) -> Option<Self> {
        let first = mapping.piece(offset, u64::from(count) * 4, 4, Access::ReadWrite)?;
        Some(Self {
            first: first.cast(),
            count,
            _mapping: Arc::clone(mapping),
        })
    }

    /// Returns the number of words.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Returns one word, if `index` is below the count.
    pub(crate) fn get(&self, index: u32) -> Option<&AtomicU32> {
        (index < self.count).then(|| {
            // SAFETY: below the count, for which `new` checked place, length and alignment; the mapping
            // lives as long as `self`. An atomic may be shared with another process.
            unsafe { AtomicU32::from_ptr(self.first.add(index as usize).as_ptr()) }
        })
    }
}
