//! The lock of an endpoint: a mutex, or none for a program that promises to make one call at a time.
//!
//! A locked instruction, as a mutex has two, waits until all earlier stores of the processor are in its
//! cache, also those into cache lines that the peer's processor has. So a mutex adds the way of a cache
//! line to each short message. The libraries with such a promise are MPI without
//! `MPI_THREAD_MULTIPLE`, UCX (`UCS_THREAD_MODE_SERIALIZED`) and libfabric (`FI_THREAD_DOMAIN`).

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use crate::codes::{Result, Return};

/// The threads that call an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Threads {
    #[default]
    Multiple,
    /// Any threads, but the program lets one call end before it makes the next one.
    Serialized,
}

/// A value that one call at a time accesses.
#[derive(Debug)]
pub(crate) struct EndpointLock<T> {
    threads: Threads,
    /// For serialized threads: whether a call is inside.
    entered: AtomicBool,
    /// For multiple threads: held by the one that is inside.
    mutex: Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time has a guard: by the mutex, or because the program has promised it with
// `MX_PARAM_SERIALIZED`. So the value only moves between threads.
unsafe impl<T: Send> Sync for EndpointLock<T> {}

/// Access to the value.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    entry: Entry<'a, T>,
    mutex: Option<MutexGuard<'a, ()>>,
}

/// Access of a serialized thread to the value. This is one pointer, which stays in a register: the
/// compiler copies a [`Guard`] in parts, and a load of a whole one then waits for all earlier stores.
#[derive(Debug)]
pub(crate) struct Entry<'a, T>(&'a EndpointLock<T>);

impl<T> EndpointLock<T> {
    pub(crate) const fn new(threads: Threads, value: T) -> Self {
        Self {
            threads,
            entered: AtomicBool::new(false),
            mutex: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    #[inline(always)]
    pub(crate) fn is_serialized(&self) -> bool {
        self.threads == Threads::Serialized
    }

    /// Takes the lock, unless another call has it.
    #[inline(always)]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        if self.is_serialized() {
            return self.enter().map(Guard::of_entry);
        }
        let mutex = match self.mutex.try_lock() {
            Ok(mutex) => mutex,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Guard::of_mutex(self, mutex))
    }

    /// Takes the lock after the call that has it.
    ///
    /// # Errors
    /// [`Return::BUSY`] if the program has broken its promise to make one call at a time.
    #[cold]
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>> {
        match self.is_serialized() {
            true => self.enter().map(Guard::of_entry).ok_or(Return::BUSY),
            false => Ok(Guard::of_mutex(self, self.lock_mutex())),
        }
    }

    /// Enters as a serialized thread; `None` if the lock is for multiple threads. The program's promise
    /// excludes two calls at the same time; the flag finds most that break it.
    #[inline(always)]
    pub(crate) fn enter(&self) -> Option<Entry<'_, T>> {
        if !self.is_serialized() || self.entered.load(Ordering::Acquire) {
            return None;
        }
        self.entered.store(true, Ordering::Relaxed);
        Some(Entry(self))
    }

    fn lock_mutex(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a, T> Guard<'a, T> {
    fn of_entry(entry: Entry<'a, T>) -> Self {
        Self { entry, mutex: None }
    }

    fn of_mutex(lock: &'a EndpointLock<T>, mutex: MutexGuard<'a, ()>) -> Self {
        Self {
            entry: Entry(lock),
            mutex: Some(mutex),
        }
    }

    /// Waits until `changed` is notified or the limit has passed. Other threads have the lock meanwhile;
    /// serialized ones have not.
    pub(crate) fn wait(mut self, changed: &Condvar, limit: Option<Duration>) -> Self {
        let mutex = self.mutex.take();
        let mutex = mutex.unwrap_or_else(|| self.entry.0.lock_mutex());
        let woken = match limit {
            None => changed.wait(mutex),
            Some(limit) => changed
                .wait_timeout(mutex, limit)
                .map(|(mutex, _)| mutex)
                .map_err(|poisoned| PoisonError::new(poisoned.into_inner().0)),
        };
        self.mutex = Some(woken.unwrap_or_else(PoisonError::into_inner));
        self
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.entry
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.entry
    }
}

impl<T> Deref for Entry<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: there is no other entry: see `Sync` above.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Entry<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Entry<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_serialized() {
            self.0.entered.store(false, Ordering::Release);
        }
    }
}
