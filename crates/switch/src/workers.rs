//! The workers of a network, from their start to their end.

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

/// Workers that are about to start.
pub struct Workers {
    shared: Arc<Shared>,
    pub(crate) first: Worker,
    /// The processes' folder, for a thread's own figures: nothing has a name any more where it
    /// starts.
    processes: Option<OwnedFd>,
}

impl Workers {
    /// Workers for the network whose supervisor is at the other end of `control`: as many as
    /// `count` says, within [`MAX_WORKERS`](crate::steering::MAX_WORKERS).
    ///
    /// # Errors
    /// The process is out of descriptors, or signal handling cannot be set up.
    pub fn new(control: ControlSocket, count: usize) -> std::io::Result<Self> {
        sigbus::install()?;
        vhost::descriptor::prepare()?;
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

    /// Serve until told to stop, or until the supervisor is gone. Every worker's thread calls
    /// `prepare` before any of them serves.
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
            // The kernel adds 50 µs to every sleep otherwise. Where it will not, frames wait longer.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
            prepare();
        };
        let prepare = &prepare;
        let copy = |fd: &Option<OwnedFd>| fd.as_ref()?.try_clone().ok();
        thread::scope(|scope| {
            // Whoever ends, for whatever reason, ends all: a network is served whole.
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
                    // The first one is gone, then: the next look finds that all is over.
                    let _ = ready.send(());
                    worker.run()
                })?);
            }
            prepare(&mut first, processes);
            drop(ready);
            for () in prepared.iter().take(others.len()) {}
            let served = first.run();
            drop(end);
            // A scope waits for what its threads do, not for their ends: the process would be gone before them.
            // Why another one failed says more than that it did.
            others
                .into_iter()
                .fold(served, |served, worker| ended(worker).and(served))
        })
    }
}

/// What became of a worker, whose thread is no more.
fn ended(worker: ScopedJoinHandle<'_, std::io::Result<()>>) -> std::io::Result<()> {
    worker
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends all workers when it is dropped.
struct StopOnDrop<'s>(&'s Arc<Shared>);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}
