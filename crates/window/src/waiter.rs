//! Sleeping until a descriptor is ready, another thread wakes this one, or a timeout expires: epoll
//! and an eventfd.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;

use crate::limits::EVENTS;
use crate::raw::ready;

/// The epoll user data of a descriptor.
pub type Token = u64;

/// The token of [`Waker::wake`]. No other descriptor may use it.
const WAKER_TOKEN: Token = Token::MAX;

/// Waits for many descriptors at once.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
}

/// Ends a wait of a [`Waiter`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

/// The result of a wait.
#[derive(Debug, Default)]
pub struct WaitResult {
    /// The tokens of the descriptors that are ready.
    pub tokens: ArrayVec<Token, EVENTS>,
    /// Whether [`Waker::wake`] was called.
    pub by_waker: bool,
}

impl Waiter {
    /// Creates a waiter without descriptors.
    ///
    /// # Errors
    /// This process or the system has no file descriptors left.
    pub fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiter = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            event: Arc::new(event),
        };
        waiter.add(&*waiter.event, WAKER_TOKEN)?;
        Ok(waiter)
    }

    /// Adds a descriptor: waits end when it becomes readable or its other end closes.
    ///
    /// # Errors
    /// The kernel refuses: there are too many descriptors, or epoll does not support this one.
    pub fn add(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token);
        // syscalls: epoll_ctl
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)
    }

    /// Adds an eventfd that others can write *and read*, edge-triggered. This side never reads it,
    /// so no other process can make a read block. Each write is reported once.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_shared(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, data, flags)
    }

    /// Removes a descriptor. Closing it does the same, unless it was duplicated.
    pub fn remove(&self, fd: impl AsFd) {
        // A descriptor that was never added needs no removal.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Returns a handle that ends waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.event))
    }

    /// Sleeps until a descriptor is ready, a waker is called, or `limit` has passed; without a
    /// limit, for any time.
    ///
    /// # Errors
    /// The kernel refuses. A signal is no error: the result is empty.
    pub fn wait(&self, limit: Option<Duration>) -> Result<WaitResult, Errno> {
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or(MAX_TIMEOUT));
        let mut events = [0; EVENTS];
        let waited = match self.epoll_pwait2(&mut events, limit.as_ref()) {
            Err(Errno::NOSYS | Errno::PERM) => self.ppoll(&mut events, limit.as_ref()),
            waited => waited,
        };
        let count = match waited {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        let mut woken = WaitResult::default();
        for token in events.into_iter().take(count) {
            match token {
                WAKER_TOKEN => woken.by_waker = self.take_wake(),
                token => woken.tokens.push(token),
            }
        }
        Ok(woken)
    }

    fn epoll_pwait2(
        &self,
        tokens: &mut [Token; EVENTS],
        limit: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        // syscalls: epoll_pwait2
        let count = epoll::wait(&self.epoll, &mut events, limit)?;
        for (token, event) in tokens.iter_mut().zip(events) {
            *token = event.data.u64();
        }
        Ok(count)
    }

    /// The same where `epoll_pwait2(2)` does not exist: on Linux before 5.11, in the valgrind of Debian 12, and in containers
    /// whose filter does not know the call. No process in our sandbox comes here.
    #[cold]
    fn ppoll(
        &self,
        tokens: &mut [Token; EVENTS],
        limit: Option<&Timespec>,
    ) -> Result<usize, Errno> {
        let mut epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
        poll(&mut epoll, limit)?;
        ready(self.epoll.as_fd(), tokens)
    }

    /// Consumes a wake-up; returns whether there was one.
    fn take_wake(&self) -> bool {
        rustix::io::read(&*self.event, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Waiter {
    /// Returns the descriptor that is readable when one of the waiter's is.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// About 34 years: longer than any wait.
const MAX_TIMEOUT: Timespec = Timespec {
    tv_sec: 1 << 30,
    tv_nsec: 0,
};

impl Waker {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) {
        // The write fails only after 2^64 calls without a wait.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waker_ends_one_wait_only() {
        let waiter = Waiter::new().unwrap();
        waiter.waker().wake();
        assert!(waiter.wait(None).unwrap().by_waker);
        let none = waiter.wait(Some(Duration::ZERO)).unwrap();
        assert!(!none.by_waker && none.tokens.is_empty());
    }

    #[test]
    fn a_peer_that_ends_is_noticed() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let waiter = Waiter::new().unwrap();
        waiter.add(&here, 7).unwrap();
        drop(there);
        assert_eq!(waiter.wait(None).unwrap().tokens.as_slice(), [7]);
    }
}
