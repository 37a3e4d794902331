//! The slots themselves: how many may be in use, which are, and what memory they keep.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::estimator::Window;
use crate::profile::Profile;

/// A slot's record: it is the file's that was published as this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotRecord {
    pub(super) version: u64,
    /// Which of the file's.
    pub(super) index: u32,
    /// How many of its bytes were written.
    pub(super) valid: u64,
}

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
    fn give_back(&self, at: u64, length: u64);

    /// A slot can be taken that could not before. Called with the slots locked: only make a note.
    fn returned(&self);

    /// The time, since any beginning: for the profile of what happens to slots.
    fn now(&self) -> Duration;
}

/// All slots of a space. Clones are the same slots.
#[derive(Clone)]
pub struct Slots {
    pool: Arc<Mutex<Pool>>,
    memory: Arc<dyn Memory>,
    slot_bytes: u64,
    most: u32,
}

#[derive(Debug)]
struct Pool {
    /// How many may be in use: what the controller changes.
    credit: u32,
    used: u32,
    /// Slots that the credit may become: a file that needs more will never fit.
    limit: u32,
    profile: Profile,
    /// Free slots that have pages. The last is used first.
    warm: VecDeque<u32>,
    /// The fewest of those that there were since [`Slots::trim`].
    idle: usize,
    /// Free slots that have none, lowest first.
    cold: BTreeSet<u32>,
    /// By index, the slots in use.
    in_use: Vec<Weak<Slot>>,
}

impl Slots {
    /// Slots of `slot_bytes` bytes: `credit` of them may be used, at most `most` ever.
    #[must_use]
    pub fn new(memory: Arc<dyn Memory>, slot_bytes: u32, credit: u32, most: u32) -> Self {
        let pool = Pool {
            credit: credit.min(most),
            used: 0,
            limit: credit.min(most),
            profile: Profile::new(memory.now()),
            warm: VecDeque::new(),
            idle: 0,
            cold: (0..most).collect(),
            in_use: (0..most).map(|_| Weak::new()).collect(),
        };
        Self {
            pool: Arc::new(Mutex::new(pool)),
            memory,
            slot_bytes: u64::from(slot_bytes),
            most,
        }
    }

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slot_bytes
    }

    /// The largest credit there can be.
    #[must_use]
    pub fn most(&self) -> u32 {
        self.most
    }

    /// The most that a file may need: more there will never be.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.pool().limit
    }

    /// How many may be in use.
    #[must_use]
    pub fn credit(&self) -> u32 {
        self.pool().credit
    }

    /// How many are.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.pool().used
    }

    /// How many have pages of the host.
    #[must_use]
    pub fn backed(&self) -> u32 {
        self.pool().backed()
    }

    pub(super) fn memory(&self) -> &dyn Memory {
        &*self.memory
    }

    /// The free slot of this index, whatever the credit: it was in use before.
    pub(super) fn take_again(&self, index: u32) -> Option<Arc<Slot>> {
        let mut pool = self.pool();
        if !pool.cold.remove(&index) {
            return None;
        }
        pool.used += 1;
        pool.profile.took(self.memory.now(), 1);
        Some(self.in_use(&mut pool, index))
    }

    /// Give back the pages of slots that were never taken: another process may have left some there.
    pub(super) fn clean(&self) {
        let pool = self.pool();
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &index in &pool.cold {
            match runs.last_mut() {
                Some((_, end)) if *end == index => *end = index.saturating_add(1),
                _ => runs.push((index, index.saturating_add(1))),
            }
        }
        for (start, end) in runs {
            let (start, end) = (u64::from(start), u64::from(end));
            let length = (end - start) * self.slot_bytes;
            self.memory.give_back(start * self.slot_bytes, length);
        }
    }

    /// So many slots, or none.
    #[must_use]
    pub fn take(&self, count: u32) -> Option<Vec<Arc<Slot>>> {
        let mut pool = self.pool();
        let after = pool.used.checked_add(count)?;
        if after > pool.credit {
            return None;
        }
        let mut indices = Vec::new();
        for _ in 0..count {
            // One is always there: `used` and the free ones are `most`, and `credit` is no more.
            let warm = pool.warm.pop_back();
            let index = warm.or_else(|| pool.cold.pop_first())?;
            indices.push(index);
        }
        pool.used = after;
        pool.idle = pool.idle.min(pool.warm.len());
        pool.profile.took(self.memory.now(), count);
        let taken = indices.into_iter();
        Some(taken.map(|index| self.in_use(&mut pool, index)).collect())
    }

    /// The slot that has this place, if it is in use: kept so by the caller, too, from now on.
    #[must_use]
    pub fn hold(&self, at: u64) -> Option<Arc<Slot>> {
        let index = usize::try_from(at.checked_div(self.slot_bytes)?).ok()?;
        self.pool().in_use.get(index)?.upgrade()
    }

    /// Let so many be in use from now on, or as many as are if these are more; returns how many. Pages
    /// of free slots beyond that go at once. Up to `limit` there may come to be.
    pub fn resize(&self, credit: u32, limit: u32) -> u32 {
        let mut pool = self.pool();
        let before = pool.credit;
        pool.credit = credit.min(self.most).max(pool.used);
        pool.limit = limit.min(self.most).max(pool.credit);
        while pool.backed() > pool.credit {
            let Some(index) = pool.warm.pop_back() else {
                break;
            };
            self.cool(&mut pool, index);
        }
        if pool.credit > before {
            self.memory.returned();
        }
        pool.credit
    }

    /// Give back the pages of as many slots as were free all the time since this was called before.
    pub fn trim(&self) {
        let idle = self.pool().idle;
        for _ in 0..idle {
            // Locked for one at a time: a write waits for no more than that.
            let mut pool = self.pool();
            let Some(index) = pool.warm.pop_front() else {
                break;
            };
            self.cool(&mut pool, index);
        }
        let mut pool = self.pool();
        pool.idle = pool.warm.len();
    }

    /// Somebody has a file open to write, or nobody.
    pub(super) fn writing(&self, writing: bool) {
        self.pool().profile.writing(self.memory.now(), writing);
    }

    /// A write waits for slots, or none.
    pub fn waiting(&self, waiting: bool) {
        self.pool().profile.waiting(self.memory.now(), waiting);
    }

    /// What has happened since this was asked the last time.
    #[must_use]
    pub fn window(&self) -> Window {
        self.pool().profile.close(self.memory.now())
    }

    fn put(&self, index: u32) {
        let mut pool = self.pool();
        let backed = pool.backed();
        pool.used -= 1;
        pool.profile.returned(self.memory.now());
        if backed > pool.credit {
            self.cool(&mut pool, index);
        } else {
            pool.warm.push_back(index);
        }
        self.memory.returned();
    }

    fn in_use(&self, pool: &mut Pool, index: u32) -> Arc<Slot> {
        let slots = self.clone();
        let slot = Arc::new(Slot { index, slots });
        if let Some(place) = pool.in_use.get_mut(index as usize) {
            *place = Arc::downgrade(&slot);
        }
        slot
    }

    /// With the lock: nobody may take the slot before its pages are gone.
    fn cool(&self, pool: &mut Pool, index: u32) {
        let at = u64::from(index) * self.slot_bytes;
        self.memory.give_back(at, self.slot_bytes);
        pool.cold.insert(index);
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        // Nothing between two states of it can panic.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn backed(&self) -> u32 {
        self.used + u32::try_from(self.warm.len()).unwrap_or(u32::MAX)
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool().fmt(to)
    }
}

/// A slot in use. It goes back when this is dropped: none can leak, none can return early.
#[derive(Debug)]
pub struct Slot {
    index: u32,
    slots: Slots,
}

impl Slot {
    /// Which it is.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Where it begins.
    #[must_use]
    pub fn start(&self) -> u64 {
        u64::from(self.index) * self.slots.slot_bytes
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.put(self.index);
    }
}
