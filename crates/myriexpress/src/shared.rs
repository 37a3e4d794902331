//! An endpoint that several threads use, and how they wait.
//!
//! One lock guards the endpoint. Of the waiting threads, one is the leader: it sleeps inside the
//! engine, with the lock, until its own condition or that of another waiting thread holds. The
//! other threads register their conditions and sleep on a condition variable. A thread that makes a
//! call meanwhile wakes the leader and takes the lock; `entry_lock` lets that thread in before the leader
//! returns.
//!
//! A handler of unexpected messages runs without the lock, so it may call the library. No thread
//! makes progress until the handler returns.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use message::{Endpoint, Waker};

use crate::abi::{ErrorHandler, RECV_FINISHED};
use crate::codes::{Result, Return};
use crate::condition::Condition;
use crate::core::{Core, Handler};
use crate::handle;

/// An open endpoint.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: u16,
    /// The error handler of the endpoint, or `None` for the one of the process.
    pub(crate) handler: Option<ErrorHandler>,
    entry_lock: Mutex<()>,
    /// Number of threads that wait for `entry_lock` or the lock.
    entry_waiters: AtomicU32,
    core: Mutex<Option<Core>>,
    changed: Condvar,
    waker: Waker,
    /// Changes with each call of the program.
    calls: AtomicU64,
}

/// A locked endpoint.
pub(crate) struct Locked<'a> {
    shared: &'a Shared,
    guard: MutexGuard<'a, Option<Core>>,
}

impl Shared {
    /// `handler_data` is the length of the longest message that a handler gets with its data.
    pub(crate) fn new(
        number: u16,
        handler: Option<ErrorHandler>,
        handler_data: u64,
        endpoint: Endpoint,
    ) -> Self {
        let core = Core::new(number, endpoint, handler_data);
        Self {
            number,
            handler,
            entry_lock: Mutex::new(()),
            entry_waiters: AtomicU32::new(0),
            waker: core.endpoint.waker(),
            core: Mutex::new(Some(core)),
            changed: Condvar::new(),
            calls: AtomicU64::new(0),
        }
    }

    /// Returns a value that changes when the program makes a call.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Locks the endpoint for a call of the program.
    pub(crate) fn lock_for_call(&self) -> Result<Locked<'_>> {
        // Two concurrent calls may count as one.
        let calls = self.calls().wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        self.lock()
    }

    /// Locks the endpoint, and wakes a thread that sleeps with the lock.
    pub(crate) fn lock(&self) -> Result<Locked<'_>> {
        // A thread that calls all the time must queue like others, or it would keep a woken leader
        // out.
        let free = self.entry_waiters.load(Ordering::Relaxed) == 0;
        let guard = match free.then(|| self.core.try_lock()) {
            Some(Ok(guard)) => guard,
            Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => self.lock_in_turn(),
        };
        match guard.is_some() {
            true => Ok(Locked {
                shared: self,
                guard,
            }),
            false => Err(Return::BAD_ENDPOINT),
        }
    }

    /// Locks the endpoint after the threads that came before.
    fn lock_in_turn(&self) -> MutexGuard<'_, Option<Core>> {
        self.entry_waiters.fetch_add(1, Ordering::Relaxed);
        let turn = self
            .entry_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let guard = match self.core.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waker.wake();
                self.core.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        drop(turn);
        self.entry_waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Closes the endpoint. Its requests are dropped, and waiting threads return. `remove` removes
    /// the endpoint's number from the table.
    pub(crate) fn close(&self, remove: impl FnOnce(u16) -> Result) -> Result {
        let mut locked = self.lock_for_call()?;
        if locked.in_handler() {
            return Err(Return::CLOSE_IN_HANDLER);
        }
        let core = locked.guard.take();
        drop(locked);
        remove(self.number)?;
        self.changed.notify_all();
        drop(core);
        Ok(())
    }
}

impl Locked<'_> {
    /// Returns the data of the endpoint, unless it was closed.
    pub(crate) fn core(&mut self) -> Result<&mut Core> {
        self.guard.as_mut().ok_or(Return::BAD_ENDPOINT)
    }

    /// Whether this thread runs the endpoint's handler.
    fn in_handler(&mut self) -> bool {
        let handler_thread = self.guard.as_ref().and_then(|core| core.handler_thread);
        handler_thread == Some(thread::current().id())
    }

    /// Wakes the threads that sleep on the condition variable.
    pub(crate) fn notify(&self) {
        self.shared.changed.notify_all();
    }

    /// Makes progress, unless that is disabled, and passes unexpected messages to the handler.
    pub(crate) fn progress(mut self) -> Result<Self> {
        let core = self.core()?;
        if !core.may_progress() {
            return Ok(self);
        }
        core.expire();
        core.endpoint.progress();
        match core.must_handle() {
            true => self.handle(),
            false => Ok(self),
        }
    }

    fn handle(mut self) -> Result<Self> {
        let shared = self.shared;
        loop {
            let core = self.core()?;
            let (Some(handler), Some(message)) = (core.handler, core.endpoint.next_unexpected())
            else {
                break;
            };
            core.handler_thread = Some(thread::current().id());
            let source = handle::address(shared.number, message.peer().bits());
            drop(self);
            let action = handler.call(source, &message);
            self = shared.lock_for_call()?;
            let core = self.core()?;
            core.handler_thread = None;
            match action {
                RECV_FINISHED => core.endpoint.consume(message),
                _ => core.endpoint.keep(message),
            }
        }
        self.notify();
        Ok(self)
    }

    /// Makes progress once, or [`wait`](Self::wait)s for the condition if there is a limit. An
    /// inner `None` means no timeout.
    pub(crate) fn progress_or_wait(
        self,
        condition: Condition,
        limit: Option<Option<Duration>>,
    ) -> Result<Self> {
        match limit {
            Some(limit) => self.wait(condition, limit),
            None => self.poll(condition),
        }
    }

    /// Makes progress once, and yields the processor if the program polls without success. The lock stays
    /// held meanwhile, as it does when the kernel preempts the thread.
    fn poll(self, condition: Condition) -> Result<Self> {
        let mut locked = self.progress()?;
        let core = locked.core()?;
        let found = core.holds(&condition);
        core.endpoint.polled(found);
        Ok(locked)
    }

    /// Waits until the condition holds, `limit` has passed or `mx_wakeup` is called. The caller
    /// finds out which.
    pub(crate) fn wait(mut self, condition: Condition, limit: Option<Duration>) -> Result<Self> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let wakeups = self.core()?.wakeups;
        loop {
            self = self.progress()?;
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let stop = self.in_handler() || left == Some(Duration::ZERO);
            let core = self.core()?;
            if stop || core.wakeups != wakeups || core.holds(&condition) {
                self.wake_followers();
                return Ok(self);
            }
            self = match core.may_progress() && !core.has_leader {
                true => self.lead(&condition, left)?,
                false => self.follow(condition, left)?,
            };
        }
    }

    /// Makes progress for the program until it makes a call. Returns false if that is not possible
    /// now.
    pub(crate) fn progress_for_program(self) -> Result<bool> {
        let mut locked = self.progress()?;
        let core = locked.core()?;
        let can = core.may_progress() && !core.has_leader;
        if can {
            locked.lead(&Condition::Never, None)?.progress()?;
        }
        Ok(can)
    }

    /// Sleeps inside the engine, as the leader of all waiting threads.
    fn lead(mut self, own: &Condition, left: Option<Duration>) -> Result<Self> {
        let shared = self.shared;
        let core = self.core()?;
        let left = core.sleep_limit(left);
        core.has_leader = true;
        let Core {
            endpoint,
            waiting,
            handler,
            ..
        } = core;
        let slept = endpoint.until(left, |endpoint| {
            let mut all = waiting.iter().map(|(_, condition)| condition).chain([own]);
            let handles = handler.is_some() && endpoint.has_unexpected();
            let woken = handles || all.any(|one| one.holds(endpoint));
            woken.then_some(())
        });
        drop(self);
        let guard = shared.lock_in_turn();
        let mut locked = Locked { shared, guard };
        locked.core()?.has_leader = false;
        locked.wake_followers();
        slept?;
        Ok(locked)
    }

    /// Wakes the waiting threads: one of them becomes the leader, or its condition holds.
    fn wake_followers(&self) {
        if self
            .guard
            .as_ref()
            .is_some_and(|core| !core.waiting.is_empty())
        {
            self.notify();
        }
    }

    /// Sleeps on the condition variable.
    fn follow(mut self, condition: Condition, left: Option<Duration>) -> Result<Self> {
        let shared = self.shared;
        let own = thread::current().id();
        self.core()?.waiting.push((own, condition));
        let guard = match left {
            None => shared.changed.wait(self.guard),
            Some(left) => shared
                .changed
                .wait_timeout(self.guard, left)
                .map(|(guard, _)| guard)
                .map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
        };
        let guard = guard.unwrap_or_else(PoisonError::into_inner);
        let mut locked = Locked { shared, guard };
        locked.core()?.waiting.retain(|(thread, _)| *thread != own);
        Ok(locked)
    }
}

impl Handler {
    fn call(self, source: crate::abi::Address, message: &message::Unexpected) -> u32 {
        let length = u32::try_from(message.length()).unwrap_or(u32::MAX);
        let bytes = message.bytes().filter(|_| message.length() <= self.data);
        let data = bytes.map_or(std::ptr::null_mut(), |bytes| bytes.as_ptr().cast_mut());
        let context = crate::abi::Pointer::from_exposed(self.context);
        (self.function)(context, source, message.value(), length, data.cast())
    }
}
