//! The slots themselves: how many may be in use, which are, and what memory they keep.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::estimator::Window;
use crate::profile::Profile;

/// The memory that slots lie in, and who waits for them. Places are bytes from its start.
pub trait Memory: Send + Sync {
    /// Copy bytes that do not overlap.
    ///
    /// # Errors
    /// The host has no memory left.
    fn copy(&self, from: u64, to: u64, length: u64) -> std::io::Result<()>;

    /// Write zeros.
    ///
    /// # Errors
    /// The host has no memory left.
    fn zero(&self, at: u64, length: u64) -> std::io::Result<()>;

    /// Give these bytes' pages back to the host. Nobody uses them; what is read there next is
    /// written before.
    fn release_pages(&self, at: u64, length: u64);

    /// A slot can be taken that could not before. Called with the slots locked: only make a note.
    fn notify_slot_free(&self);

    /// The time, since any beginning: for the profile of what happens to slots.
    fn now(&self) -> Duration;
}

/// All slots of a space. Clones are the same slots.
#[derive(Clone)]
pub struct SlotPool {
    state: Arc<Mutex<PoolState>>,
    memory: Arc<dyn Memory>,
    slot_bytes: u64,
    max_slots: u32,
}

#[derive(Debug)]
struct PoolState {
    /// How many may be in use: what the controller changes.
    credit: u32,
    used: u32,
    /// Slots that the credit may become: a file that needs more will never fit.
    limit: u32,
    profile: Profile,
    /// Free slots that have pages. The last is used first.
    warm: VecDeque<u32>,
    /// The fewest of those that there were since [`SlotPool::trim`].
    min_warm: usize,
    /// Free slots that have none, lowest first.
    cold: BTreeSet<u32>,
    /// By index, the slots in use.
    in_use: Vec<Weak<Slot>>,
}

impl SlotPool {
    /// Slots of `slot_bytes` bytes: `credit` of them may be used, at most `max_slots` ever.
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

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The largest credit there can be.
    #[must_use]
    pub fn max_slots(&self) -> u32 {
        self.max_slots
    }

    /// The most that a file may need: more there will never be.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.lock().limit
    }

    /// How many may be in use.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.lock().credit
    }

    /// How many are.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.lock().used
    }

    /// How many have pages of the host.
    #[must_use]
    pub fn backed(&self) -> u32 {
        self.lock().backed()
    }

    pub(super) fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// The free slot of this index, whatever the credit: it was in use before.
    pub(super) fn allocate_at(&self, index: u32) -> Option<Arc<Slot>> {
        let mut state = self.lock();
        if !state.cold.remove(&index) {
            return None;
        }
        state.used += 1;
        state.profile.record_take(self.memory.now(), 1);
        Some(self.register(&mut state, index))
    }

    /// Give back the pages of slots that were never taken: another process may have left some there.
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

    /// So many slots, or none.
    #[must_use]
    pub fn allocate(&self, count: u32) -> Option<Vec<Arc<Slot>>> {
        let mut state = self.lock();
        let after = state.used.checked_add(count)?;
        if after > state.credit {
            return None;
        }
        let mut indices = Vec::new();
        for _ in 0..count {
            // One is always there: `used` and the free ones are `max_slots`, and `credit` is no more.
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

    /// The slot that has this place, if it is in use: kept so by the caller, too, from now on.
    #[must_use]
    pub fn slot_containing(&self, at: u64) -> Option<Arc<Slot>> {
        let index = usize::try_from(at.checked_div(self.slot_bytes)?).ok()?;
        self.lock().in_use.get(index)?.upgrade()
    }

    /// Let so many be in use from now on, or as many as are if these are more; returns how many. Pages
    /// of free slots beyond that go at once. Up to `limit` there may come to be.
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

    /// Give back the pages of as many slots as were free all the time since this was called before.
    pub fn trim(&self) {
        let min_warm = self.lock().min_warm;
        for _ in 0..min_warm {
            // Locked for one at a time: a write waits for no more than that.
            let mut state = self.lock();
            let Some(index) = state.warm.pop_front() else {
                break;
            };
            self.make_cold(&mut state, index);
        }
        let mut state = self.lock();
        state.min_warm = state.warm.len();
    }

    /// Somebody has a file open to write, or nobody.
    pub(super) fn set_writing(&self, writing: bool) {
        self.lock().profile.set_writing(self.memory.now(), writing);
    }

    /// A write waits for slots, or none.
    pub fn set_waiting(&self, waiting: bool) {
        self.lock().profile.set_waiting(self.memory.now(), waiting);
    }

    /// What has happened since this was asked the last time.
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

    /// With the lock: nobody may take the slot before its pages are gone.
    fn make_cold(&self, state: &mut PoolState, index: u32) {
        let at = u64::from(index) * self.slot_bytes;
        self.memory.release_pages(at, self.slot_bytes);
        state.cold.insert(index);
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Nothing between two states of it can panic.
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

/// A slot in use. It goes back when this is dropped: none can leak, none can return early.
#[derive(Debug)]
pub struct Slot {
    index: u32,
    pool: SlotPool,
}

impl Slot {
    /// Which it is.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Where it begins.
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
