//! Single words of shared memory: a 32-bit one that one side writes, and a 64-bit one that both
//! change.

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::mapping::{Access, Mapping};

/// A 32-bit word of a window.
#[derive(Debug)]
pub(crate) struct Word {
    address: NonNull<u32>,
    _mapping: Arc<Mapping>,
}

// SAFETY: the word is only reached through an atomic; see the module documentation.
unsafe impl Send for Word {}

impl Word {
    /// Returns the word at `offset`, if it lies inside and is aligned.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64) -> Option<Self> {
        let address = mapping.piece(offset, 4, 4, Access::ReadWrite)?;
        Some(Self {
            address: address.cast(),
            _mapping: Arc::clone(mapping),
        })
    }

    #[inline(always)]
    fn atomic(&self) -> &AtomicU32 {
        // SAFETY: `new` checked address and alignment, and the mapping lives as long as `self`. An
        // atomic may be shared with another process.
        unsafe { AtomicU32::from_ptr(self.address.as_ptr()) }
    }

    /// Loads the word (acquire): the writer's earlier stores are visible afterwards.
    #[inline(always)]
    pub(crate) fn load(&self) -> u32 {
        self.atomic().load(Ordering::Acquire)
    }

    /// Stores the word (release): a reader that sees it also sees the earlier stores.
    #[inline(always)]
    pub(crate) fn store(&self, value: u32) {
        self.atomic().store(value, Ordering::Release);
    }
}

/// A 64-bit word of a window, which both sides change.
#[derive(Debug)]
pub(crate) struct LongWord {
    address: NonNull<u64>,
    _mapping: Arc<Mapping>,
}

// SAFETY: as for `Word`.
unsafe impl Send for LongWord {}
// SAFETY: as above; the methods give out an atomic only.
unsafe impl Sync for LongWord {}

impl LongWord {
    /// Returns the word at `offset`, if it lies inside and is aligned.
    pub(crate) fn new(mapping: &Arc<Mapping>, offset: u64) -> Option<Self> {
        let address = mapping.piece(offset, 8, 8, Access::ReadWrite)?;
        Some(Self {
            address: address.cast(),
            _mapping: Arc::clone(mapping),
        })
    }

    #[inline(always)]
    pub(crate) fn atomic(&self) -> &AtomicU64 {
        // SAFETY: as in `Word`.
        unsafe { AtomicU64::from_ptr(self.address.as_ptr()) }
    }
}
