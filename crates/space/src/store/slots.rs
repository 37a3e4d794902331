//! The pool of slots: how many may be in use, which are in use, and which have pages of the host.
//!
//! A free slot is *warm* if it has pages, and *cold* if its pages were released. The pool allocates warm slots first, the
//! most recently used one before the others, so the number of warm slots follows the demand ([`SlotPool::trim`]).

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::estimator::Window;
use crate::profile::Profile;

/// The record of a slot that belongs to the file published as `version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotRecord {
    pub(super) version: u64,
    /// Index of the block in the file.
    pub(super) block: u32,
    /// Number of bytes of the block that belong to the file.
    pub(super) valid_bytes: u64,
}

/// The memory of the slots, and the notification of writes that wait for slots. Offsets are in bytes from its start.
pub trait Memory: Send + Sync {
    /// Copies bytes between ranges that do not overlap.
    ///
    /// # Errors
    /// Returns an error if the host has no memory available.
    fn copy(&self, from: u64, to: u64, length: u64) -> std::io::Result<()>;

    /// Writes zeros.
    ///
    /// # Errors
    /// Returns an error if the host has no memory available.
    fn zero(&self, at: u64, length: u64) -> std::io::Result<()>;

    /// Returns the pages of these bytes to the host. The bytes belong to free slots; they are written before they are read
    /// again.
    fn release_pages(&self, at: u64, length: u64);

    /// Notifies waiting writes that a slot may be available. The pool is locked during the call, so the implementation may
    /// only set a flag or write to an eventfd.
    fn notify_slot_free(&self);

    /// Returns the monotonic time, from any epoch, for the profile.
    fn now(&self) -> Duration;
}

/// All slots of a space. Clones refer to the same slots.
#[derive(Clone)]
pub struct SlotPool {
    state: Arc<Mutex<PoolState>>,
    memory: Arc<dyn Memory>,
    slot_bytes: u64,
    max_slots: u32,
}

#[derive(Debug)]
struct PoolState {
    /// Number of slots that may be in use. The controller changes it.
    credit: u32,
    used: u32,
    /// The largest credit that the controller may grant. A file that needs more slots is refused.
    limit: u32,
    profile: Profile,
    /// Free slots with pages. The last one is allocated first.
    warm: VecDeque<u32>,
    /// The smallest number of warm slots since the last [`SlotPool::trim`].
    min_warm: usize,
    /// Free slots without pages. The lowest index is allocated first.
    cold: BTreeSet<u32>,
    /// The slots in use, by index.
    in_use: Vec<Weak<Slot>>,
}

impl SlotPool {
    /// Creates a pool of `max_slots` slots of `slot_bytes` bytes, of which `credit` may be in use.
    #[must_use]
    pub fn new(memory: Arc<dyn Memory>, slot_bytes: u32, credit: u32, max_slots: u32) -> Self {
        let state = PoolState {
            credit: credit.min(max_slots),
            used: 0,
            limit: credit.min(max_slots),
            profile: Profile::new(memory.now()),
            warm: VecDeque::new(),
            min_warm: 0,
            cold: (0..max_slots).collect(),
            in_use: (0..max_slots).map(|_| Weak::new()).collect(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            memory,
            slot_bytes: u64::from(slot_bytes),
            max_slots,
        }
    }

    /// Returns the bytes of a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// Returns the number of slots in the memory: the largest possible credit.
    #[must_use]
    pub fn max_slots(&self) -> u32 {
        self.max_slots
    }

    /// Returns the largest number of slots that a file may need.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.lock().limit
    }

    /// Returns the number of slots that may be in use.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.lock().credit
    }

    /// Returns the number of slots in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.lock().used
    }

    /// Returns the number of slots that have pages of the host.
    #[must_use]
    pub fn backed(&self) -> u32 {
        self.lock().backed()
    }

    pub(super) fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// Allocates the slot of this index if it is free, regardless of the credit, because the previous process used it.
    pub(super) fn allocate_at(&self, index: u32) -> Option<Arc<Slot>> {
        let mut state = self.lock();
        if !state.cold.remove(&index) {
            return None;
        }
        state.used += 1;
        state.profile.record_take(self.memory.now(), 1);
        Some(self.register(&mut state, index))
    }

    /// Releases the pages of all cold slots: a previous process may have left pages there.
    pub(super) fn release_free_pages(&self) {
        let state = self.lock();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &index in &state.cold {
            match runs.last_mut() {
                Some((_, end)) if *end == index => *end = index.saturating_add(1),
                _ => runs.push((index, index.saturating_add(1))),
            }
        }
        for (start, end) in runs {
            let (start, end) = (u64::from(start), u64::from(end));
            let length = (end - start) * self.slot_bytes;
            self.memory.release_pages(start * self.slot_bytes, length);
        }
    }

    /// Allocates `count` slots. Returns `None` without a change if the credit does not allow that.
    #[must_use]
    pub fn allocate(&self, count: u32) -> Option<Vec<Arc<Slot>>> {
        let mut state = self.lock();
        let after = state.used.checked_add(count)?;
        if after > state.credit {
            return None;
        }
        let mut indices = Vec::new();
        for _ in 0..count {
            // A free slot exists: used and free slots together are `max_slots`, and `credit` is at most that.
            let warm = state.warm.pop_back();
            let index = warm.or_else(|| state.cold.pop_first())?;
            indices.push(index);
        }
        state.used = after;
        state.min_warm = state.min_warm.min(state.warm.len());
        state.profile.record_take(self.memory.now(), count);
        let indices = indices.into_iter();
        Some(
            indices
                .map(|index| self.register(&mut state, index))
                .collect(),
        )
    }

    /// Returns the slot in use that contains this offset. The slot stays in use as long as the caller keeps it.
    #[must_use]
    pub fn slot_containing(&self, at: u64) -> Option<Arc<Slot>> {
        let index = usize::try_from(at.checked_div(self.slot_bytes)?).ok()?;
        self.lock().in_use.get(index)?.upgrade()
    }

    /// Sets the number of slots that may be in use, but not below the slots in use now; returns the number. Releases the
    /// pages of free slots beyond it at once. `limit` is the largest number that a later call may grant.
    pub fn resize(&self, credit: u32, limit: u32) -> u32 {
        let mut state = self.lock();
        let before = state.credit;
        state.credit = credit.min(self.max_slots).max(state.used);
        state.limit = limit.min(self.max_slots).max(state.credit);
        while state.backed() > state.credit {
            let Some(index) = state.warm.pop_back() else {
                break;
            };
            self.make_cold(&mut state, index);
        }
        if state.credit > before {
            self.memory.notify_slot_free();
        }
        state.credit
    }

    /// Releases the pages of as many slots as were warm throughout the time since the last call.
    pub fn trim(&self) {
        let min_warm = self.lock().min_warm;
        for _ in 0..min_warm {
            // Lock the pool for one slot at a time, so a write waits for the release of one slot at most.
            let mut state = self.lock();
            let Some(index) = state.warm.pop_front() else {
                break;
            };
            self.make_cold(&mut state, index);
        }
        let mut state = self.lock();
        state.min_warm = state.warm.len();
    }

    /// Records in the profile whether any file is open for writing.
    pub(super) fn set_writing(&self, writing: bool) {
        self.lock().profile.set_writing(self.memory.now(), writing);
    }

    /// Records in the profile whether any write waits for slots.
    pub fn set_waiting(&self, waiting: bool) {
        self.lock().profile.set_waiting(self.memory.now(), waiting);
    }

    /// Returns the measurements since the last call.
    #[must_use]
    pub fn window(&self) -> Window {
        self.lock().profile.close_window(self.memory.now())
    }

    fn free(&self, index: u32) {
        let mut state = self.lock();
        let backed = state.backed();
        state.used -= 1;
        state.profile.record_return(self.memory.now());
        if backed > state.credit {
            self.make_cold(&mut state, index);
        } else {
            state.warm.push_back(index);
        }
        self.memory.notify_slot_free();
    }

    fn register(&self, state: &mut PoolState, index: u32) -> Arc<Slot> {
        let pool = self.clone();
        let slot = Arc::new(Slot { index, pool });
        if let Some(entry) = state.in_use.get_mut(index as usize) {
            *entry = Arc::downgrade(&slot);
        }
        slot
    }

    /// Releases the pages of a free slot. The caller has the pool locked, so the slot cannot be allocated before its pages
    /// are released.
    fn make_cold(&self, state: &mut PoolState, index: u32) {
        let at = u64::from(index) * self.slot_bytes;
        self.memory.release_pages(at, self.slot_bytes);
        state.cold.insert(index);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // No code panics between two consistent states of the pool.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PoolState {
    fn backed(&self) -> u32 {
        self.used + u32::try_from(self.warm.len()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().fmt(to)
    }
}

/// A slot in use. Dropping it returns the slot to the pool, so no slot leaks and none returns early.
#[derive(Debug)]
pub struct Slot {
    index: u32,
    pool: SlotPool,
}

impl Slot {
    /// Returns the index of the slot.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the offset of its first byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        u64::from(self.index) * self.pool.slot_bytes
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pool.free(self.index);
    }
}
