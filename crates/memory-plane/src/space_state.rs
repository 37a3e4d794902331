//! The state that the VM's thread and the clients' thread share.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use space::estimator::Window;
use space::store::{Slot, SlotPool, Store, ledger_bytes};

use crate::push::Outbox;
use crate::rate::RateLimit;
use crate::space_memory::{self, LedgerFile, SlotFile};

/// A running space: its store, its memory, its counters and its rate limit.
#[derive(Debug)]
pub struct SpaceState {
    store: Mutex<Store>,
    slots: SlotPool,
    slot_file: Arc<SlotFile>,
    /// Start time since 1970. It is part of the ETags, because a new process may count versions anew.
    began: Duration,
    pub(crate) counters: Counters,
    pub(crate) rate: RateLimit,
    pub(crate) outbox: Outbox,
}

/// The counters of a space.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Writes that wait for slots now (gauge).
    pub(crate) waiting: AtomicU64,
    /// Writes that had to wait for slots.
    pub(crate) waited: AtomicU64,
    /// Malformed requests of the guest.
    pub(crate) invalid_requests: AtomicU64,
    /// Connected clients (gauge).
    pub(crate) clients: AtomicU64,
    /// Requests of clients.
    pub(crate) requests: AtomicU64,
    /// Requests and connections that the access rules refused.
    pub(crate) refused: AtomicU64,
    /// Connections that were closed because the client read or sent too little in time.
    pub(crate) stalled: AtomicU64,
    /// Connections that were refused because there were too many.
    pub(crate) refused_clients: AtomicU64,
    /// Bytes of objects that were passed to the network.
    pub(crate) sent: AtomicU64,
}

/// The gauges of a space, and its counters since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Number of slots that may be in use.
    pub slots: u32,
    /// Number of slots in use.
    pub used: u32,
    /// Bytes of host memory that the slots occupy.
    pub memory: u64,
    /// Published files.
    pub published: usize,
    /// Unfinished files.
    pub unfinished: usize,
    /// Writes of the VM that wait for slots now.
    pub waiting: u64,
    /// Writes of the VM that had to wait for slots.
    pub waited: u64,
    /// Malformed requests of the VM.
    #[serde(rename = "nonsense")]
    pub invalid_requests: u64,
    /// Connected clients.
    pub clients: u64,
    /// Requests of clients.
    pub requests: u64,
    /// Requests and connections that were refused because the client may not fetch.
    pub refused: u64,
    /// Clients that were disconnected because they read or sent too little in time.
    pub stalled: u64,
    /// Clients that were refused because there were too many.
    #[serde(rename = "turned_away")]
    pub refused_clients: u64,
    /// Bytes of files sent to clients or pushed.
    pub sent: u64,
    /// Pushed files that the store acknowledged.
    pub pushed: u64,
    /// Failed attempts to push a file.
    pub push_failures: u64,
    /// Why the last attempt failed, if none succeeded since.
    #[serde(rename = "push_trouble")]
    pub push_error: Option<String>,
}

impl SpaceState {
    /// Creates an empty space of `slots` slots, of which `credit` may be in use, in new memory.
    ///
    /// # Errors
    /// Returns an error if the kernel provides no memory.
    pub fn new(name: &str, slot_bytes: u32, credit: u32, slots: u32) -> std::io::Result<Arc<Self>> {
        let slot_file = space_memory::create(name, u64::from(slot_bytes) * u64::from(slots))?;
        let ledger = space_memory::create(&format!("{name}-notes"), ledger_bytes(slots))?;
        Self::with(slot_file, ledger, slot_bytes, credit, slots)
    }

    /// Opens a space in existing memory and restores the files of its ledger.
    ///
    /// # Errors
    /// Returns an error if the memory cannot be mapped or read.
    pub fn with(
        slot_file: File,
        ledger: File,
        slot_bytes: u32,
        credit: u32,
        slots: u32,
    ) -> std::io::Result<Arc<Self>> {
        let slot_file = Arc::new(SlotFile::new(slot_file)?);
        let slots = SlotPool::new(Arc::clone(&slot_file) as Arc<_>, slot_bytes, credit, slots);
        let began = now();
        let store = Store::from_ledger(slots.clone(), Arc::new(LedgerFile(ledger)), began)?;
        Ok(Arc::new(Self {
            store: Mutex::new(store),
            slots,
            slot_file,
            began,
            counters: Counters::default(),
            rate: RateLimit::default(),
            outbox: Outbox::default(),
        }))
    }

    /// Locks the store.
    pub fn store(&self) -> MutexGuard<'_, Store> {
        // A panic of a thread ends the process. Until then, the store is as usable as before.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the number of slots that may be in use, but not below the slots in use now; returns the number. `limit` is the
    /// largest number that a later call may grant.
    pub fn resize(&self, credit: u32, limit: u32) -> u32 {
        self.slots.resize(credit, limit)
    }

    /// Sets the rate limit in bytes per second, protocol overhead included; `None` removes it.
    pub fn limit(&self, rate: Option<u64>) {
        self.rate.set(rate);
    }

    /// Releases the pages of slots that stayed free since the last call.
    pub fn trim(&self) {
        self.slots.trim();
    }

    /// Returns the measurements since the last call.
    #[must_use]
    pub fn window(&self) -> Window {
        self.slots.window()
    }

    /// Returns the state of the push as the guest reads it: a summary line, and one line per file.
    #[must_use]
    pub fn push_status(&self) -> String {
        self.outbox.status_text(&self.store(), self.sent())
    }

    /// Notifies the push that a file may have been published, renamed or removed.
    pub fn note_change(&self) {
        if self.outbox.is_enabled() {
            self.outbox.changed.notify_one();
        }
    }

    /// Returns the bytes of objects that were passed to the network.
    pub(crate) fn sent(&self) -> u64 {
        self.counters.sent.load(Ordering::Relaxed)
    }

    /// Returns the bytes of a slot.
    pub(crate) fn slot_bytes(&self) -> u64 {
        self.slots.slot_bytes()
    }

    /// Returns the slots that contain these bytes, so that the caller keeps them in use, too. All must be in use already.
    pub(crate) fn slots_containing(&self, bytes: &[u8]) -> Option<Vec<Arc<Slot>>> {
        let start = self.slot_file.offset_of(bytes)?;
        let slot_bytes = self.slot_bytes();
        let first = start.checked_div(slot_bytes)?;
        let end = (start + bytes.len() as u64).div_ceil(slot_bytes);
        (first..end)
            .map(|index| self.slots.slot_containing(index * slot_bytes))
            .collect()
    }

    /// Records how many writes wait for slots.
    pub(crate) fn note_waiting(&self, waiting: u64) {
        let before = self.counters.waiting.swap(waiting, Ordering::Relaxed);
        if (before == 0) != (waiting == 0) {
            self.slots.set_waiting(waiting > 0);
        }
    }

    /// Returns the slots' memory.
    #[must_use]
    pub fn slot_file(&self) -> &Arc<SlotFile> {
        &self.slot_file
    }

    /// Returns a number that differs between the processes that serve the space: the start time in nanoseconds.
    pub(crate) fn start_nanos(&self) -> u128 {
        self.began.as_nanos()
    }

    /// Returns the gauges and counters.
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
            invalid_requests: count(&counters.invalid_requests),
            clients: count(&counters.clients),
            requests: count(&counters.requests),
            refused: count(&counters.refused),
            stalled: count(&counters.stalled),
            refused_clients: count(&counters.refused_clients),
            sent: count(&counters.sent),
            pushed: count(&self.outbox.pushed),
            push_failures: count(&self.outbox.failures),
            push_error: self.outbox.last_error(),
        }
    }
}

/// Adds 1 to a counter.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Returns the time since 1970.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
