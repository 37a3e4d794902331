//! Starts, runs and stops the workers of a network.

use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::{self, ScopedJoinHandle};

use rustix::event::epoll;
use rustix::fs::{Mode, OFlags};
use vhost::sigbus;

use crate::contention::Contention;
use crate::control::ControlSocket;
use crate::event_key::EventKey;
use crate::manager::Manager;
use crate::shared::{FIRST, Shared};
use crate::worker::Worker;

/// The workers of a network before they start.
pub struct Workers {
    shared: Arc<Shared>,
    pub(crate) first: Worker,
    /// `/proc`, for the scheduler statistics of a thread: the sandbox in which the threads start cannot
    /// open it.
    processes: Option<OwnedFd>,
}

impl Workers {
    /// Creates `count` workers (1 to [`MAX_WORKERS`](crate::steering::MAX_WORKERS)) for the network whose
    /// supervisor has the other end of `control`.
    ///
    /// # Errors
    /// The process is out of descriptors, or signal handling cannot be set up.
    pub fn new(control: ControlSocket, count: usize) -> std::io::Result<Self> {
        sigbus::install()?;
        vhost::fd_kind::prepare()?;
        let shared = Arc::new(Shared::new(count)?);
        if let Some(slot) = shared.slots.get(FIRST) {
            let interest = epoll::EventFlags::IN;
            epoll::add(&slot.poll, &control, EventKey::Control.data(), interest)?;
        }
        let manager = Manager::new(Arc::clone(&shared), control);
        let path = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            first: Worker::new(Arc::clone(&shared), FIRST, Some(manager))?,
            processes: rustix::fs::open("/proc", path, Mode::empty()).ok(),
            shared,
        })
    }

    /// Serves until the supervisor sends [`Order::Stop`](crate::control::Order::Stop) or closes the control
    /// socket. Every worker's thread calls `prepare` before any of them serves.
    ///
    /// # Errors
    /// A thread cannot be started, a worker has failed, or the kernel refuses to wait for events.
    pub fn run(self, prepare: impl Fn() + Sync) -> std::io::Result<()> {
        let Self {
            shared,
            mut first,
            processes,
        } = self;
        let prepare = |worker: &mut Worker, processes: Option<OwnedFd>| {
            worker.contention = Contention::of_this_thread(processes);
            // By default the kernel adds 50 µs of timer slack to every sleep. If this fails, frames wait
            // longer.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            prepare();
        };
        let prepare = &prepare;
        let copy = |fd: &Option<OwnedFd>| fd.as_ref()?.try_clone().ok();
        thread::scope(|scope| {
            // When one worker ends, for whatever reason, all end: no network runs with fewer workers.
            let end = StopOnDrop(&shared);
            let (ready, prepared) = channel();
            let mut others = Vec::new();
            for number in FIRST + 1..shared.slots.len() {
                let (ready, end, processes) =
                    (ready.clone(), StopOnDrop(&shared), copy(&processes));
                others.push(thread::Builder::new().spawn_scoped(scope, move || {
                    let mut worker = Worker::new(Arc::clone(end.0), number, None)?;
                    let _end = end;
                    prepare(&mut worker, processes);
                    // If this fails, the first worker is gone, and `run` ends at once.
                    let _ = ready.send(());
                    worker.run()
                })?);
            }
            prepare(&mut first, processes);
            drop(ready);
            for () in prepared.iter().take(others.len()) {}
            let served = first.run();
            drop(end);
            // Join each thread: a scope waits for the closures, not for the threads, and the process could
            // end before they do. The error of another worker is returned in preference to that of the
            // first, which only says that another one failed.
            others
                .into_iter()
                .fold(served, |served, worker| ended(worker).and(served))
        })
    }
}

/// Joins a worker's thread and returns its result.
fn ended(worker: ScopedJoinHandle<'_, std::io::Result<()>>) -> std::io::Result<()> {
    worker
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Stops all workers when it is dropped.
struct StopOnDrop<'s>(&'s Arc<Shared>);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
