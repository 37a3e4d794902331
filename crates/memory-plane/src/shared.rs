//! What the VM's side and the clients' side share.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use space::estimator::Window;
use space::store::{Slot, SlotPool, Store, ledger_bytes};

use crate::push::Outbox;
use crate::ram::{self, LedgerFile, Ram};
use crate::rate::RateLimit;

/// A space at work.
#[derive(Debug)]
pub struct Shared {
    store: Mutex<Store>,
    slots: SlotPool,
    ram: Arc<Ram>,
    /// When it began, since 1970: in the tags of its objects, for versions are counted anew.
    began: Duration,
    pub(crate) counters: Counters,
    pub(crate) rate: RateLimit,
    pub(crate) outbox: Outbox,
}

/// What has happened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Writes that wait for slots now.
    pub(crate) waiting: AtomicU64,
    /// Writes that had to.
    pub(crate) waited: AtomicU64,
    /// Requests that the guest got wrong.
    pub(crate) nonsense: AtomicU64,
    /// Clients connected now.
    pub(crate) clients: AtomicU64,
    /// Requests of clients.
    pub(crate) requests: AtomicU64,
    /// Of these, refused by the rules on access.
    pub(crate) refused: AtomicU64,
    /// Connections cut because the client took nothing for too long, or said nothing.
    pub(crate) stalled: AtomicU64,
    /// Connections not taken because there are too many.
    pub(crate) turned_away: AtomicU64,
    /// Bytes of objects handed to the network.
    pub(crate) sent: AtomicU64,
}

/// What there is, and what has happened since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Slots that may be in use.
    pub slots: u32,
    /// Slots in use.
    pub used: u32,
    /// Bytes of the host's memory that slots have.
    pub memory: u64,
    /// Files that clients can get.
    pub published: usize,
    /// Files being written.
    pub unfinished: usize,
    /// Writes of the VM that wait for slots.
    pub waiting: u64,
    /// Writes that had to.
    pub waited: u64,
    /// Requests of the VM that made no sense.
    pub nonsense: u64,
    /// Clients connected.
    pub clients: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Of these, refused because the client may not.
    pub refused: u64,
    /// Clients cut off because they took or said nothing for too long.
    pub stalled: u64,
    /// Clients not taken because there were too many.
    pub turned_away: u64,
    /// Bytes of files sent to clients, or to the store.
    pub sent: u64,
    /// Files that the store has acknowledged.
    pub pushed: u64,
    /// Attempts to push a file that failed.
    pub push_failures: u64,
    /// Why the last attempt failed, if none has gone well since.
    pub push_trouble: Option<String>,
}

impl Shared {
    /// An empty space of `slots` slots, of which `credit` may be used now.
    ///
    /// # Errors
    /// The kernel gives no memory.
    pub fn new(name: &str, slot_bytes: u32, credit: u32, slots: u32) -> std::io::Result<Arc<Self>> {
        let ram = ram::make(name, u64::from(slot_bytes) * u64::from(slots))?;
        let ledger = ram::make(&format!("{name}-notes"), ledger_bytes(slots))?;
        Self::with(ram, ledger, slot_bytes, credit, slots)
    }

    /// The same in memory that is there, with what was published in it.
    ///
    /// # Errors
    /// The memory cannot be read.
    pub fn with(
        ram: File,
        ledger: File,
        slot_bytes: u32,
        credit: u32,
        slots: u32,
    ) -> std::io::Result<Arc<Self>> {
        let ram = Arc::new(Ram::new(ram)?);
        let slots = SlotPool::new(Arc::clone(&ram) as Arc<_>, slot_bytes, credit, slots);
        let began = now();
        let store = Store::from_ledger(slots.clone(), Arc::new(LedgerFile(ledger)), began)?;
        Ok(Arc::new(Self {
            store: Mutex::new(store),
            slots,
            ram,
            began,
            counters: Counters::default(),
            rate: RateLimit::default(),
            outbox: Outbox::default(),
        }))
    }

    /// What is in it, for the caller alone.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A thread that panics ends the process; until then nothing is worse than it was.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Let so many slots be in use, or as many as are if these are more; returns how many. Up to
    /// `limit` there may come to be.
    pub fn resize(&self, credit: u32, limit: u32) -> u32 {
        self.slots.resize(credit, limit)
    }

    /// Send at most so many bytes a second, what belongs to protocols included; or as many as can be.
    pub fn limit(&self, rate: Option<u64>) {
        self.rate.set(rate);
    }

    /// Give back the pages of slots that were free all the time since this was called before.
    pub fn trim(&self) {
        self.slots.trim();
    }

    /// What has happened since this was asked the last time.
    #[must_use]
    pub fn window(&self) -> Window {
        self.slots.window()
    }

    /// How pushing goes, as the guest reads it: a line for all, and one for each file.
    #[must_use]
    pub fn push_status(&self) -> String {
        self.outbox.status_text(&self.store(), self.sent())
    }

    /// A file may have been published, got another name, or gone.
    pub fn note_change(&self) {
        if self.outbox.is_enabled() {
            self.outbox.changed.notify_one();
        }
    }

    /// Bytes of objects handed to the network.
    pub(crate) fn sent(&self) -> u64 {
        self.counters.sent.load(Ordering::Relaxed)
    }

    /// Bytes of a slot.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slots.slot_bytes()
    }

    /// The slots that have these bytes, which lie in slots that somebody holds: held by the caller, too.
    pub(crate) fn slots_containing(&self, bytes: &[u8]) -> Option<Vec<Arc<Slot>>> {
        let start = self.ram.offset_of(bytes)?;
        let slot_bytes = self.slot_bytes();
        let first = start.checked_div(slot_bytes)?;
        let end = (start + bytes.len() as u64).div_ceil(slot_bytes);
        (first..end)
            .map(|index| self.slots.slot_containing(index * slot_bytes))
            .collect()
    }

    /// So many writes wait for slots.
    pub(crate) fn note_waiting(&self, waiting: u64) {
        let before = self.counters.waiting.swap(waiting, Ordering::Relaxed);
        if (before == 0) != (waiting == 0) {
            self.slots.set_waiting(waiting > 0);
        }
    }

    /// Its memory.
    #[must_use]
    pub fn ram(&self) -> &Arc<Ram> {
        &self.ram
    }

    /// What tells this life of the space from others.
    pub(crate) fn start_nanos(&self) -> u128 {
        self.began.as_nanos()
    }

    /// How it is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let store = self.store();
        let (slots, fill) = (&self.slots, store.usage());
        drop(store);
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Figures {
            slots: slots.credit(),
            used: slots.used(),
            memory: u64::from(slots.backed()) * slots.slot_bytes(),
            published: fill.published,
            unfinished: fill.unfinished,
            waiting: count(&counters.waiting),
            waited: count(&counters.waited),
            nonsense: count(&counters.nonsense),
            clients: count(&counters.clients),
            requests: count(&counters.requests),
            refused: count(&counters.refused),
            stalled: count(&counters.stalled),
            turned_away: count(&counters.turned_away),
            sent: count(&counters.sent),
            pushed: count(&self.outbox.pushed),
            push_failures: count(&self.outbox.failures),
            push_trouble: self.outbox.last_error(),
        }
    }
}

/// One more.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
