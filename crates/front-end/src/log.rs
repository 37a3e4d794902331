//! A front-end's dirty log, and the messages that start and stop logging, in the order in which QEMU
//! sends them.

use std::collections::BTreeSet;

use crate::features::LOG_ALL;
use crate::nic::Nic;
use crate::ram::Ram;
use crate::wire::{self, logged_addresses, number, request};

/// The size in bytes of the page that one bit of the log stands for.
pub const PAGE: u64 = 4096;

/// A dirty log in a memfd of its own.
#[derive(Debug)]
pub struct Log {
    /// The memory with the log's bits.
    pub ram: Ram,
    bytes: u64,
}

impl Log {
    /// Creates a log for addresses below `end`, with all bits clear.
    #[must_use]
    pub fn new(end: u64) -> Self {
        let bytes = end.div_ceil(PAGE * 8).next_multiple_of(8);
        Self {
            ram: Ram::new(bytes),
            bytes,
        }
    }

    /// Returns the size of the log in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns and clears the numbers of the pages written since the last call. The back-end may log
    /// pages while this function runs.
    #[must_use]
    pub fn take(&self) -> BTreeSet<u64> {
        let words = (0..self.bytes).step_by(2);
        let pages = words.flat_map(|at| {
            let word = self.ram.take(at);
            let set = (0..16).filter(move |bit| word & 1 << bit != 0);
            set.map(move |bit| at * 8 + bit)
        });
        pages.collect()
    }
}

impl Nic {
    /// Creates a log that covers all memory of the guest.
    #[must_use]
    pub fn log(&self) -> Log {
        let ends = self.ram.regions().iter().map(|r| r.guest + r.size);
        Log::new(ends.max().unwrap_or(0))
    }

    /// Sends a log to the back-end. [`Nic::start`] describes `pump`.
    pub fn set_log_base(&self, log: &Log, mut pump: impl FnMut()) {
        let payload = wire::log(log.bytes(), 0);
        let sent = self
            .wire
            .send(request::SET_LOG_BASE, &payload, &[log.ram.fd()]);
        assert!(sent, "the back-end hung up");
        pump();
        assert_eq!(self.wire.number(request::SET_LOG_BASE), 0);
    }

    /// Has the back-end log all writes. It logs writes to the used rings at the log addresses `used`.
    pub fn log_all(&self, used: [u64; 2], mut pump: impl FnMut()) {
        let features = number(self.options.features | LOG_ALL);
        assert!(self.wire.send(request::SET_FEATURES, &features, &[]));
        for (ring, queue) in (0..).zip([&self.rx, &self.tx]) {
            let log = used[ring as usize];
            let places = logged_addresses(ring, queue.user_addresses(), log);
            assert!(self.wire.send(request::SET_VRING_ADDR, &places, &[]));
        }
        pump();
    }

    /// Starts logging.
    pub fn start_log(&self, log: &Log, mut pump: impl FnMut()) {
        self.set_log_base(log, &mut pump);
        self.log_all([self.rx.used, self.tx.used], pump);
    }

    /// Stops logging.
    pub fn stop_log(&self, mut pump: impl FnMut()) {
        let features = number(self.options.features);
        assert!(self.wire.send(request::SET_FEATURES, &features, &[]));
        for (ring, queue) in (0..).zip([&self.rx, &self.tx]) {
            let [descriptors, used, available] = queue.user_addresses();
            let places = wire::addresses(ring, descriptors, used, available);
            assert!(self.wire.send(request::SET_VRING_ADDR, &places, &[]));
        }
        pump();
    }
}
