//! The state that the workers of a network share: the network itself, and the means to wake each other.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::clock;
use crate::control::WorkerReport;
use crate::event_key::EventKey;
use crate::steering::{Steering, WakeSet};
use crate::switch::Switch;
use crate::sync::{AtomicBool, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of the worker that also serves the supervisor and the front-ends.
pub(crate) const FIRST: usize = 0;

/// The shared state of the workers.
///
/// A worker locks the network for reading while it forwards, one round at a time, and does not hold the
/// lock while it sleeps. The first worker does all other work, with the network locked for writing. The
/// lock prefers a waiting writer to later readers, so the writer waits for one round at most.
#[derive(Debug)]
pub(crate) struct Shared {
    network: RwLock<Switch>,
    pub(crate) slots: Box<[WorkerSlot]>,
    pub(crate) epoch: Instant,
    stopping: AtomicBool,
}

/// One worker's entry in the shared state: its epoll set, its pending ports and its figures.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    /// The epoll set on which the worker sleeps.
    pub(crate) poll: OwnedFd,
    /// The eventfd that wakes the worker.
    wake: OwnedFd,
    /// Wakes the worker in loom models, which have no kernel.
    #[cfg(loom)]
    pub(crate) loom_wake: loom::sync::Notify,
    /// Ports that the worker should add to its list of active ports.
    pending_ports: Mutex<Vec<u16>>,
    pub(crate) wakeups: AtomicU64,
    pub(crate) busy_ticks: AtomicU64,
    pub(crate) busy_frames: AtomicU64,
}

impl WorkerSlot {
    fn new() -> Result<Self, Errno> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        // Edge triggered: each write is one event, and the counter need not be read back.
        let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&poll, &wake, EventKey::Wake.data(), edge)?;
        Ok(Self {
            poll,
            wake,
            #[cfg(loom)]
            loom_wake: loom::sync::Notify::new(),
            pending_ports: Mutex::default(),
            wakeups: AtomicU64::new(0),
            busy_ticks: AtomicU64::new(0),
            busy_frames: AtomicU64::new(0),
        })
    }

    fn pending_ports(&self) -> MutexGuard<'_, Vec<u16>> {
        self.pending_ports
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next pending port.
    pub(crate) fn next_pending_port(&self) -> Option<u16> {
        self.pending_ports().pop()
    }
}

impl Shared {
    /// Creates the state of `workers` workers.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(crate) fn new(workers: usize) -> Result<Self, Errno> {
        let steering = Steering::new(workers);
        let slots = (0..steering.workers()).map(|_| WorkerSlot::new());
        Ok(Self {
            network: RwLock::new(Switch::new(steering)),
            slots: slots.collect::<Result<_, _>>()?,
            epoch: clock::now(),
            stopping: AtomicBool::new(false),
        })
    }

    /// Locks the network for forwarding.
    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Switch> {
        self.network.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the network for changes; no worker forwards while it is locked.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Switch> {
        let network = self.network.write();
        let mut network = network.unwrap_or_else(PoisonError::into_inner);
        network.seconds = self.seconds(clock::now());
        network
    }

    /// Queues a port for a worker's list of active ports.
    pub(crate) fn queue_port(&self, worker: usize, port: u16) {
        if let Some(slot) = self.slots.get(worker) {
            let mut pending_ports = slot.pending_ports();
            if !pending_ports.contains(&port) {
                pending_ports.push(port);
            }
        }
    }

    /// Wakes a worker.
    pub(crate) fn wake(&self, worker: usize) {
        if let Some(slot) = self.slots.get(worker) {
            // syscalls: write
            // No error to handle: the counter overflows only after 2^64 wake-ups.
            let _ = rustix::io::write(&slot.wake, &1_u64.to_ne_bytes());
            #[cfg(loom)]
            slot.loom_wake.notify();
        }
    }

    /// Wakes the workers in `wake_set`, except the caller `own`.
    pub(crate) fn wake_set(&self, wake_set: WakeSet, own: usize) {
        if wake_set != WakeSet::NONE {
            let others = (0..self.slots.len()).filter(|worker| *worker != own);
            others
                .filter(|worker| wake_set.contains(*worker))
                .for_each(|worker| self.wake(worker));
        }
    }

    /// Wakes all workers except the first.
    pub(crate) fn wake_others(&self) {
        (FIRST + 1..self.slots.len()).for_each(|worker| self.wake(worker));
    }

    /// Returns the seconds since the network started.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        let seconds = now.duration_since(self.epoch).as_secs();
        // The value wraps after 136 years.
        u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Tells all workers to stop.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        (0..self.slots.len()).for_each(|worker| self.wake(worker));
    }

    /// Returns whether all workers must stop.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the sums of the workers' figures.
    pub(crate) fn figures(&self) -> WorkerReport {
        let sum = |figure: fn(&WorkerSlot) -> &AtomicU64| {
            let figures = self.slots.iter().map(figure);
            figures.map(|figure| figure.load(Ordering::Relaxed)).sum()
        };
        WorkerReport {
            wakeups: sum(|slot| &slot.wakeups),
            busy_ticks: sum(|slot| &slot.busy_ticks),
            busy_frames: sum(|slot| &slot.busy_frames),
            ..WorkerReport::default()
        }
    }
}
