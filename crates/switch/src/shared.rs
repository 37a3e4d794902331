//! What the workers of a network share: the network, and how they tell each other of work.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::control::WorkerReport;
use crate::event_key::EventKey;
use crate::steering::{Steering, WakeSet};
use crate::switch::Switch;
use crate::sync::{AtomicBool, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The number of the worker that also hears the supervisor and the front-ends.
pub(crate) const FIRST: usize = 0;

/// What all workers have.
///
/// A worker forwards with the network locked for reading, one round at a time, and sleeps without.
/// Whatever is not forwarding is done by the first one, with the network locked for writing. A
/// writer that waits comes before readers that come later, so it waits for a round at most.
#[derive(Debug)]
pub(crate) struct Shared {
    network: RwLock<Switch>,
    pub(crate) slots: Box<[WorkerSlot]>,
    pub(crate) epoch: Instant,
    stopping: AtomicBool,
}

/// Where a worker is reached, and what it says of itself.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    /// What it sleeps on.
    pub(crate) poll: OwnedFd,
    /// Ends its sleep.
    wake: OwnedFd,
    /// What it sleeps on where there is no kernel to wake it.
    #[cfg(loom)]
    pub(crate) loom_wake: loom::sync::Notify,
    /// Ports it should look at.
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

    /// The next port to look at.
    pub(crate) fn next_pending_port(&self) -> Option<u16> {
        self.pending_ports().pop()
    }
}

impl Shared {
    /// For so many workers.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(crate) fn new(workers: usize) -> Result<Self, Errno> {
        let steering = Steering::new(workers);
        let slots = (0..steering.workers()).map(|_| WorkerSlot::new());
        Ok(Self {
            network: RwLock::new(Switch::new(steering)),
            slots: slots.collect::<Result<_, _>>()?,
            epoch: Instant::now(),
            stopping: AtomicBool::new(false),
        })
    }

    /// The network, to forward.
    #[inline]
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Switch> {
        self.network.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The network, to change it: nobody forwards meanwhile.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Switch> {
        let network = self.network.write();
        let mut network = network.unwrap_or_else(PoisonError::into_inner);
        network.seconds = self.seconds(Instant::now());
        network
    }

    /// Have a worker look at a port.
    pub(crate) fn queue_port(&self, worker: usize, port: u16) {
        if let Some(slot) = self.slots.get(worker) {
            let mut pending_ports = slot.pending_ports();
            if !pending_ports.contains(&port) {
                pending_ports.push(port);
            }
        }
    }

    /// End a worker's sleep.
    pub(crate) fn wake(&self, worker: usize) {
        if let Some(slot) = self.slots.get(worker) {
            // syscalls: write
            // A counter that is full wakes it as well.
            let _ = rustix::io::write(&slot.wake, &1_u64.to_ne_bytes());
            #[cfg(loom)]
            slot.loom_wake.notify();
        }
    }

    /// End the sleep of those among `wake_set`, but for oneself.
    pub(crate) fn wake_set(&self, wake_set: WakeSet, own: usize) {
        if wake_set != WakeSet::NONE {
            let others = (0..self.slots.len()).filter(|worker| *worker != own);
            others
                .filter(|worker| wake_set.has(*worker))
                .for_each(|worker| self.wake(worker));
        }
    }

    /// End the sleep of all but the first worker.
    pub(crate) fn wake_others(&self) {
        (FIRST + 1..self.slots.len()).for_each(|worker| self.wake(worker));
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        let seconds = now.duration_since(self.epoch).as_secs();
        // Wraps after 136 years.
        u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Have all workers end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        (0..self.slots.len()).for_each(|worker| self.wake(worker));
    }

    /// Whether all workers are to end.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// What the workers say of themselves, in all.
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
