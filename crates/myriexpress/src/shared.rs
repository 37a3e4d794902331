//! An endpoint that several threads use, and how they wait.
//!
//! One lock guards the endpoint. Of the threads that wait, one works: it sleeps inside the
//! endpoint, with the lock, until what it waits for is there, or what one of the others waits for.
//! The others, which left word of what that is, sleep until it tells them. Whoever calls meanwhile
//! wakes the one that works and takes the lock; `door` lets it in before that one comes back.
//!
//! A handler of unexpected messages is called without the lock, so it may call the library. Nobody
//! makes progress until it returns.

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
use crate::limits::HANDED;

/// An open endpoint.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: u16,
    /// What handles its errors, if not the process's.
    pub(crate) handler: Option<ErrorHandler>,
    door: Mutex<()>,
    /// Threads at the door.
    queued: AtomicU32,
    core: Mutex<Option<Core>>,
    changed: Condvar,
    waker: Waker,
    /// Changes with each call of the program.
    calls: AtomicU64,
}

/// The endpoint, locked.
pub(crate) struct Entered<'a> {
    shared: &'a Shared,
    guard: MutexGuard<'a, Option<Core>>,
}

impl Shared {
    pub(crate) fn new(number: u16, handler: Option<ErrorHandler>, endpoint: Endpoint) -> Self {
        Self {
            number,
            handler,
            door: Mutex::new(()),
            queued: AtomicU32::new(0),
            waker: endpoint.waker(),
            core: Mutex::new(Some(Core::new(number, endpoint))),
            changed: Condvar::new(),
            calls: AtomicU64::new(0),
        }
    }

    /// Something else than before, if the program has called since.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Lock it for a call of the program.
    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        // Two at the same time may count as one.
        let calls = self.calls().wrapping_add(1);
        self.calls.store(calls, Ordering::Relaxed);
        self.lock()
    }

    /// Lock it. Whoever sleeps with the lock is woken.
    pub(crate) fn lock(&self) -> Result<Entered<'_>> {
        // Whoever calls all the time would keep out those that sleep, if it did not queue too.
        let free = self.queued.load(Ordering::Relaxed) == 0;
        let guard = match free.then(|| self.core.try_lock()) {
            Some(Ok(guard)) => guard,
            Some(Err(TryLockError::Poisoned(poisoned))) => poisoned.into_inner(),
            Some(Err(TryLockError::WouldBlock)) | None => self.queue(),
        };
        match guard.is_some() {
            true => Ok(Entered {
                shared: self,
                guard,
            }),
            false => Err(Return::BAD_ENDPOINT),
        }
    }

    /// Lock it behind those that came before.
    fn queue(&self) -> MutexGuard<'_, Option<Core>> {
        self.queued.fetch_add(1, Ordering::Relaxed);
        let turn = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        let guard = match self.core.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.waker.wake();
                self.core.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        drop(turn);
        self.queued.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Close it. Its requests are no more, and whoever waits returns. `remove` takes its number out
    /// of the table of endpoints.
    pub(crate) fn close(&self, remove: impl FnOnce(u16) -> Result) -> Result {
        let mut entered = self.enter()?;
        if entered.in_handler() {
            return Err(Return::CLOSE_IN_HANDLER);
        }
        let core = entered.guard.take();
        drop(entered);
        remove(self.number)?;
        self.changed.notify_all();
        drop(core);
        Ok(())
    }
}

impl Entered<'_> {
    /// The endpoint, unless it was closed.
    pub(crate) fn core(&mut self) -> Result<&mut Core> {
        self.guard.as_mut().ok_or(Return::BAD_ENDPOINT)
    }

    /// Whether this thread is in the endpoint's handler.
    fn in_handler(&mut self) -> bool {
        let handling = self.guard.as_ref().and_then(|core| core.handling);
        handling == Some(thread::current().id())
    }

    /// Tell those that sleep that something changed.
    pub(crate) fn tell(&self) {
        self.shared.changed.notify_all();
    }

    /// Make progress, unless that is off, and have messages that nobody waits for handled.
    pub(crate) fn work(mut self) -> Result<Self> {
        let core = self.core()?;
        if !core.may_work() {
            return Ok(self);
        }
        core.expire();
        core.endpoint.progress();
        match core.endpoint.has_unexpected() {
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
            core.handling = Some(thread::current().id());
            let source = handle::address(shared.number, message.peer().bits());
            drop(self);
            let action = handler.call(source, &message);
            self = shared.enter()?;
            let core = self.core()?;
            core.handling = None;
            match action {
                RECV_FINISHED => core.endpoint.consume(message),
                _ => core.endpoint.keep(message),
            }
        }
        self.tell();
        Ok(self)
    }

    /// [`work`](Self::work) once, or [`wait`](Self::wait) for the condition when there is a limit;
    /// the inner one is none for as long as it takes.
    pub(crate) fn work_or_wait(
        self,
        condition: Condition,
        limit: Option<Option<Duration>>,
    ) -> Result<Self> {
        match limit {
            Some(limit) => self.wait(condition, limit),
            None => self.work(),
        }
    }

    /// Wait until the condition holds, `limit` is over or `mx_wakeup` is called; the caller sees
    /// for itself which.
    pub(crate) fn wait(mut self, condition: Condition, limit: Option<Duration>) -> Result<Self> {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let wakeups = self.core()?.wakeups;
        loop {
            self = self.work()?;
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let stop = self.in_handler() || left == Some(Duration::ZERO);
            let core = self.core()?;
            if let Condition::AnyEnd(pattern) = &condition {
                // Puts aside what is not the program's.
                let _ = core.oldest(pattern);
            }
            if stop || core.wakeups != wakeups || condition.holds(&mut core.endpoint) {
                self.hand_over();
                return Ok(self);
            }
            self = match core.may_work() && !core.working {
                true => self.lead(&condition, left)?,
                false => self.follow(condition, left)?,
            };
        }
    }

    /// Make progress in the program's place until it calls; false when that cannot be done now.
    pub(crate) fn stand_in(self) -> Result<bool> {
        let mut entered = self.work()?;
        let core = entered.core()?;
        let can = core.may_work() && !core.working;
        if can {
            entered.lead(&Condition::Call, None)?.work()?;
        }
        Ok(can)
    }

    /// Sleep inside the endpoint, for all that wait.
    fn lead(mut self, own: &Condition, left: Option<Duration>) -> Result<Self> {
        let shared = self.shared;
        let core = self.core()?;
        let left = core.nearest(left);
        core.working = true;
        let Core {
            endpoint, waiting, ..
        } = core;
        let slept = endpoint.until(left, |endpoint| {
            let mut all = waiting.iter().map(|(_, condition)| condition).chain([own]);
            let woken = endpoint.has_unexpected() || all.any(|one| one.holds(endpoint));
            woken.then_some(())
        });
        drop(self);
        let guard = shared.queue();
        let mut entered = Entered { shared, guard };
        entered.core()?.working = false;
        entered.hand_over();
        slept?;
        Ok(entered)
    }

    /// One of those that sleep has to work, or has what it waited for.
    fn hand_over(&self) {
        if self
            .guard
            .as_ref()
            .is_some_and(|core| !core.waiting.is_empty())
        {
            self.tell();
        }
    }

    /// Sleep until somebody else says that something changed.
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
        let mut entered = Entered { shared, guard };
        entered.core()?.waiting.retain(|(thread, _)| *thread != own);
        Ok(entered)
    }
}

impl Handler {
    fn call(self, source: crate::abi::Address, message: &message::Unexpected) -> u32 {
        let length = u32::try_from(message.length()).unwrap_or(u32::MAX);
        let bytes = message.bytes().filter(|_| message.length() <= HANDED);
        let data = bytes.map_or(std::ptr::null_mut(), |bytes| bytes.as_ptr().cast_mut());
        let context = crate::abi::Pointer::kept(self.context);
        (self.function)(context, source, message.value(), length, data.cast())
    }
}
