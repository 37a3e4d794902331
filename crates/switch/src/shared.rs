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
    pub(crate) posts: Box<[Post]>,
    pub(crate) epoch: Instant,
    over: AtomicBool,
}

/// Where a worker is reached, and what it says of itself.
#[derive(Debug)]
pub(crate) struct Post {
    /// What it sleeps on.
    pub(crate) poll: OwnedFd,
    /// Ends its sleep.
    wake: OwnedFd,
    /// What it sleeps on where there is no kernel to wake it.
    #[cfg(loom)]
    pub(crate) bell: loom::sync::Notify,
    /// Ports it should look at.
    mail: Mutex<Vec<u16>>,
    pub(crate) wakeups: AtomicU64,
    pub(crate) busy_ticks: AtomicU64,
    pub(crate) busy_frames: AtomicU64,
}

impl Post {
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
            bell: loom::sync::Notify::new(),
            mail: Mutex::default(),
            wakeups: AtomicU64::new(0),
            busy_ticks: AtomicU64::new(0),
            busy_frames: AtomicU64::new(0),
        })
    }

    fn mail(&self) -> MutexGuard<'_, Vec<u16>> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next port to look at.
    pub(crate) fn next_mail(&self) -> Option<u16> {
        self.mail().pop()
    }
}

impl Shared {
    /// For so many workers.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub(crate) fn new(workers: usize) -> Result<Self, Errno> {
        let steering = Steering::new(workers);
        let posts = (0..steering.workers()).map(|_| Post::new());
        Ok(Self {
            network: RwLock::new(Switch::new(steering)),
            posts: posts.collect::<Result<_, _>>()?,
            epoch: Instant::now(),
            over: AtomicBool::new(false),
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
    pub(crate) fn tell(&self, worker: usize, port: u16) {
        if let Some(post) = self.posts.get(worker) {
            let mut mail = post.mail();
            if !mail.contains(&port) {
                mail.push(port);
            }
        }
    }

    /// End a worker's sleep.
    pub(crate) fn wake(&self, worker: usize) {
        if let Some(post) = self.posts.get(worker) {
            // syscalls: write
            // A counter that is full wakes it as well.
            let _ = rustix::io::write(&post.wake, &1_u64.to_ne_bytes());
            #[cfg(loom)]
            post.bell.notify();
        }
    }

    /// End the sleep of those among `wake_set`, but for oneself.
    pub(crate) fn wake_askers(&self, wake_set: WakeSet, own: usize) {
        if wake_set != WakeSet::NONE {
            let others = (0..self.posts.len()).filter(|worker| *worker != own);
            others
                .filter(|worker| wake_set.has(*worker))
                .for_each(|worker| self.wake(worker));
        }
    }

    /// End the sleep of all but the first worker.
    pub(crate) fn wake_others(&self) {
        (FIRST + 1..self.posts.len()).for_each(|worker| self.wake(worker));
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self, now: Instant) -> u32 {
        let seconds = now.duration_since(self.epoch).as_secs();
        // Wraps after 136 years.
        u32::try_from(seconds & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Have all workers end.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        (0..self.posts.len()).for_each(|worker| self.wake(worker));
    }

    /// Whether all workers are to end.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// What the workers say of themselves, in all.
    pub(crate) fn figures(&self) -> WorkerReport {
        let sum = |figure: fn(&Post) -> &AtomicU64| {
            let figures = self.posts.iter().map(figure);
            figures.map(|figure| figure.load(Ordering::Relaxed)).sum()
        };
        WorkerReport {
            wakeups: sum(|post| &post.wakeups),
            busy_ticks: sum(|post| &post.busy_ticks),
            busy_frames: sum(|post| &post.busy_frames),
            ..WorkerReport::default()
        }
    }
}
