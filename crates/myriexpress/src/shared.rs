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

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use message::Waker;

use crate::abi::{ErrorHandler, RECV_FINISHED};
use crate::codes::{Result, Return};
use crate::condition::Condition;
use crate::core::{Core, Handler};
use crate::handle;
use crate::raw::endpoint_lock::{EndpointLock, Entry, Guard, Threads};

/// The number of a slot without an endpoint.
const NO_ENDPOINT: u16 = 0;

/// The place of an endpoint. It stays when the endpoint is closed, so that a call needs no locked
/// instruction to find the endpoint.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The number of the endpoint.
    number: AtomicU16,
    seldom_used: Mutex<SeldomUsed>,
    entry_lock: Mutex<()>,
    /// Number of threads that wait for `entry_lock` or the lock.
    entry_waiters: AtomicU32,
    core: EndpointLock<Option<Box<Core>>>,
    changed: Condvar,
    /// Changes with each call of the program.
    calls: AtomicU64,
}

/// What errors and waiting threads need of an endpoint, while another thread may have its lock.
#[derive(Debug)]
struct SeldomUsed {
    /// The error handler of the endpoint, or `None` for the one of the process.
    handler: Option<ErrorHandler>,
    waker: Option<Waker>,
}

/// The same without an endpoint.
const UNUSED: SeldomUsed = SeldomUsed {
    handler: None,
    waker: None,
};

/// An endpoint of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) number: u16,
    slot: &'static Slot,
}

/// A locked endpoint.
pub(crate) struct Locked {
    shared: Shared,
    guard: Guard<'static, Option<Box<Core>>>,
}

impl Slot {
    pub(crate) const fn new(threads: Threads) -> Self {
        Self {
            number: AtomicU16::new(NO_ENDPOINT),
            seldom_used: Mutex::new(UNUSED),
            entry_lock: Mutex::new(()),
            entry_waiters: AtomicU32::new(0),
            core: EndpointLock::new(threads, None),
            changed: Condvar::new(),
            calls: AtomicU64::new(0),
        }
    }

    /// Returns the number of the endpoint, if there is one.
    #[inline(always)]
    pub(crate) fn number(&self) -> Option<u16> {
        let number = self.number.load(Ordering::Relaxed);
        (number != NO_ENDPOINT).then_some(number)
    }

    /// Reserves the slot for an endpoint; returns false if it has one already.
    fn claim(&self, number: u16) -> bool {
        let (claimed, read) = (Ordering::Acquire, Ordering::Relaxed);
        let claim = self
            .number
            .compare_exchange(NO_ENDPOINT, number, claimed, read);
        claim.is_ok()
    }
}

impl Shared {
    /// Opens an endpoint in a slot. `make` makes what is behind its lock. Returns `None` if the slot is
    /// not free.
    pub(crate) fn open(
        number: u16,
        slot: &'static Slot,
        handler: Option<ErrorHandler>,
        make: impl FnOnce() -> Result<Core>,
    ) -> Result<Option<Self>> {
        if !slot.claim(number) {
            return Ok(None);
        }
        let shared = Self { number, slot };
        let opened = make().and_then(|core| shared.fill(core, handler));
        opened.inspect_err(|_| slot.number.store(NO_ENDPOINT, Ordering::Release))?;
        Ok(Some(shared))
    }

    fn fill(&self, core: Core, handler: Option<ErrorHandler>) -> Result {
        // A late call for an endpoint that was closed may have the lock for a moment.
        let mut guard = self.slot.core.lock()?;
        *self.seldom_used() = SeldomUsed {
            handler,
            waker: Some(core.endpoint.waker()),
        };
        *guard = Some(Box::new(core));
        Ok(())
    }

    /// Returns the endpoint in a slot.
    #[inline]
    pub(crate) fn find(number: u16, slot: &'static Slot) -> Option<Self> {
        (slot.number() == Some(number)).then_some(Self { number, slot })
    }

    fn seldom_used(&self) -> MutexGuard<'static, SeldomUsed> {
        let seldom_used = self.slot.seldom_used.lock();
        seldom_used.unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error handler of the endpoint, or `None` for the one of the process.
    #[cold]
    pub(crate) fn handler(&self) -> Option<ErrorHandler> {
        self.seldom_used().handler
    }

    /// Returns whether the program makes one call at a time.
    pub(crate) fn is_serialized(&self) -> bool {
        self.slot.core.is_serialized()
    }

    /// Returns a value that changes when the program makes a call.
    pub(crate) fn calls(&self) -> u64 {
        self.slot.calls.load(Ordering::Relaxed)
    }

    /// Locks the endpoint for a call of the program.
    pub(crate) fn lock_for_call(&self) -> Result<Locked> {
        // Two concurrent calls may count as one.
        let calls = self.calls().wrapping_add(1);
        self.slot.calls.store(calls, Ordering::Relaxed);
        self.lock()
    }

    /// Enters the endpoint for a call of a serialized program.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Entry<'static, Option<Box<Core>>>> {
        self.slot.core.enter()
    }

    /// Returns the data of the endpoint, unless it was closed. Another endpoint may have the slot by
    /// now.
    #[inline(always)]
    pub(crate) fn own<'a>(&self, core: &'a mut Option<Box<Core>>) -> Result<&'a mut Core> {
        let core = core.as_deref_mut();
        core.filter(|core| core.number == self.number)
            .ok_or(Return::BAD_ENDPOINT)
    }

    /// Locks the endpoint, and wakes a thread that sleeps with the lock.
    pub(crate) fn lock(&self) -> Result<Locked> {
        // A thread that calls all the time must queue like others, or it would keep a woken leader
        // out.
        let free = self.slot.entry_waiters.load(Ordering::Relaxed) == 0;
        let guard = free.then(|| self.slot.core.try_lock()).flatten();
        let guard = match guard {
            Some(guard) => guard,
            None => self.lock_in_turn()?,
        };
        let mut locked = self.locked(guard);
        locked.core()?;
        Ok(locked)
    }

    fn locked(self, guard: Guard<'static, Option<Box<Core>>>) -> Locked {
        Locked {
            shared: self,
            guard,
        }
    }

    /// Locks the endpoint after the threads that came before.
    #[cold]
    fn lock_in_turn(&self) -> Result<Guard<'static, Option<Box<Core>>>> {
        let slot = self.slot;
        slot.entry_waiters.fetch_add(1, Ordering::Relaxed);
        let turn = slot
            .entry_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let guard = slot.core.try_lock().map_or_else(
            || {
                if let Some(waker) = &self.seldom_used().waker {
                    waker.wake();
                }
                slot.core.lock()
            },
            Ok,
        );
        drop(turn);
        slot.entry_waiters.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// Closes the endpoint. Its requests are dropped, and waiting threads return.
    pub(crate) fn close(&self) -> Result {
        let mut locked = self.lock_for_call()?;
        if locked.in_handler() {
            return Err(Return::CLOSE_IN_HANDLER);
        }
        let core = locked.guard.take();
        drop(locked);
        self.slot.changed.notify_all();
        drop(core);
        *self.seldom_used() = UNUSED;
        self.slot.number.store(NO_ENDPOINT, Ordering::Release);
        Ok(())
    }
}

impl Locked {
    /// Returns the data of the endpoint, unless it was closed.
    pub(crate) fn core(&mut self) -> Result<&mut Core> {
        self.shared.own(&mut self.guard)
    }

    /// Whether this thread runs the endpoint's handler.
    fn in_handler(&mut self) -> bool {
        let handler_thread = self.guard.as_ref().and_then(|core| core.handler_thread);
        handler_thread == Some(thread::current().id())
    }

    /// Wakes the threads that sleep on the condition variable.
    pub(crate) fn notify(&self) {
        self.shared.slot.changed.notify_all();
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
            core.handled |= action == RECV_FINISHED;
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
        let handled = std::mem::take(&mut core.handled);
        let found = core.holds(&condition) || handled;
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
        let mut locked = shared.locked(shared.lock_in_turn()?);
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
        let mut locked = shared.locked(self.guard.wait(&shared.slot.changed, left));
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
