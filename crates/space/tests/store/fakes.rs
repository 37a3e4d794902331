//! A fake memory and a fake ledger for the tests of the store.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use space::store::{Content, Extent, Ledger, Lookup, Memory, SlotPool, Store, StoreError};

pub(crate) const SLOT: u32 = 8;
pub(crate) const MAX_SLOTS: u32 = 12;

/// A memory whose released pages read as a byte that no test writes.
pub(crate) struct FakeMemory {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) freed: AtomicUsize,
}

pub(crate) const RELEASED: u8 = 0xee;

impl FakeMemory {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![RELEASED; (SLOT * MAX_SLOTS) as usize]),
            freed: AtomicUsize::new(0),
        })
    }

    pub(crate) fn fill(&self, at: u64, with: &[u8]) {
        let at = usize::try_from(at).unwrap();
        self.bytes.lock().unwrap()[at..at + with.len()].copy_from_slice(with);
    }

    pub(crate) fn read_all(&self, content: &Content) -> Vec<u8> {
        let extents = content.read(u64::from(SLOT), 0, u64::MAX);
        let bytes = self.bytes.lock().unwrap();
        let mut all = Vec::new();
        for extent in extents {
            match extent {
                Extent::Bytes { at, length } => {
                    let (at, length) = (at as usize, length as usize);
                    all.extend_from_slice(&bytes[at..at + length]);
                }
                Extent::Zeros { length } => all.extend(vec![0; length as usize]),
            }
        }
        all
    }
}

impl Memory for FakeMemory {
    fn copy(&self, from: u64, to: u64, length: u64) -> io::Result<()> {
        let (from, to, length) = (from as usize, to as usize, length as usize);
        let mut bytes = self.bytes.lock().unwrap();
        bytes.copy_within(from..from + length, to);
        Ok(())
    }

    fn zero(&self, at: u64, length: u64) -> io::Result<()> {
        self.fill(at, &vec![0; length as usize]);
        Ok(())
    }

    fn release_pages(&self, at: u64, length: u64) {
        self.fill(at, &vec![RELEASED; length as usize]);
    }

    fn notify_slot_free(&self) {
        self.freed.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

/// A sparse ledger: the bytes written, by offset. With `memory` set, it also records the state of ledger and memory after
/// each write.
#[derive(Default)]
pub(crate) struct FakeLedger {
    pub(crate) written: Mutex<Written>,
    pub(crate) memory: Mutex<Option<Arc<FakeMemory>>>,
    pub(crate) history: Mutex<Vec<(Written, Vec<u8>)>>,
}

pub(crate) type Written = BTreeMap<u64, Vec<u8>>;

impl Ledger for FakeLedger {
    fn write(&self, at: u64, bytes: &[u8]) {
        let mut written = self.written.lock().unwrap();
        let record = written.entry(at).or_default();
        record.resize(record.len().max(bytes.len()), 0);
        record[..bytes.len()].copy_from_slice(bytes);
        if let Some(memory) = &*self.memory.lock().unwrap() {
            let memory = memory.bytes.lock().unwrap().clone();
            self.history.lock().unwrap().push((written.clone(), memory));
        }
    }

    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        to.fill(0);
        let written = self.written.lock().unwrap();
        for (offset, record) in written.range(at..at + to.len() as u64) {
            let start = (offset - at) as usize;
            to[start..start + record.len()].copy_from_slice(record);
        }
        Ok(())
    }
}

/// Opens a store as a new process does after the previous one was killed in this state of ledger and memory.
pub(crate) fn reopen(written: &Written, bytes: &[u8]) -> (Store, Arc<FakeMemory>, Arc<FakeLedger>) {
    let memory = FakeMemory::new();
    memory.bytes.lock().unwrap().copy_from_slice(bytes);
    let ledger = Arc::new(FakeLedger::default());
    *ledger.written.lock().unwrap() = written.clone();
    let slots = SlotPool::new(
        Arc::clone(&memory) as Arc<dyn Memory>,
        SLOT,
        MAX_SLOTS,
        MAX_SLOTS,
    );
    let store = Store::from_ledger(slots, Arc::clone(&ledger) as Arc<dyn Ledger>, now(0));
    (store.unwrap(), memory, ledger)
}

pub(crate) fn now(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn store(credit: u32) -> (Store, Arc<FakeMemory>) {
    let (store, memory, _) = store_with_ledger(credit);
    (store, memory)
}

pub(crate) fn store_with_ledger(credit: u32) -> (Store, Arc<FakeMemory>, Arc<FakeLedger>) {
    let memory = FakeMemory::new();
    let slots = SlotPool::new(
        Arc::clone(&memory) as Arc<dyn Memory>,
        SLOT,
        credit,
        MAX_SLOTS,
    );
    slots.resize(credit, MAX_SLOTS);
    let ledger = Arc::new(FakeLedger::default());
    let store = Store::from_ledger(slots, Arc::clone(&ledger) as Arc<dyn Ledger>, now(0));
    (store.unwrap(), memory, ledger)
}

pub(crate) fn write(
    store: &mut Store,
    memory: &FakeMemory,
    file: u64,
    at: u64,
    bytes: &[u8],
) -> Result<(), StoreError> {
    let mut left = bytes;
    for (offset, length) in store.write(file, at, bytes.len() as u64, now(1))? {
        let (here, rest) = left.split_at(length as usize);
        memory.fill(offset, here);
        left = rest;
    }
    assert!(left.is_empty());
    Ok(())
}

pub(crate) fn publish(store: &mut Store, file: u64) {
    store.open(file, true).unwrap();
    store.close(file, true);
}

pub(crate) fn object(store: &Store, name: &[u8]) -> Option<space::store::Object> {
    match store.find([name]) {
        Lookup::Object(object) => Some(object),
        Lookup::Unfinished | Lookup::Nothing => None,
    }
}
