//! Sleeping until a peer, another thread or the clock has something.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use arrayvec::ArrayVec;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;

use crate::limits::EVENTS;

/// What a descriptor was added as.
pub type Token = u64;

/// The token of [`Waker::wake`]; no descriptor may have it.
const WOKEN: Token = Token::MAX;

/// Sleeps on many descriptors at once.
#[derive(Debug)]
pub struct Waiter {
    epoll: OwnedFd,
    event: Arc<OwnedFd>,
}

/// Ends a wait of a [`Waiter`] from another thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

/// What a wait brought.
#[derive(Debug, Default)]
pub struct Woken {
    /// The descriptors that have something.
    pub tokens: ArrayVec<Token, EVENTS>,
    /// Whether [`Waker::wake`] was called.
    pub by_waker: bool,
}

impl Waiter {
    /// One that waits for nothing yet.
    ///
    /// # Errors
    /// No descriptors left.
    pub fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let waiter = Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            event: Arc::new(event),
        };
        waiter.add(&*waiter.event, WOKEN)?;
        Ok(waiter)
    }

    /// Wait for a descriptor to become readable or to end.
    ///
    /// # Errors
    /// The kernel refuses: too many, or no descriptor one can wait for.
    pub fn add(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token);
        // syscalls: epoll_ctl
        epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)
    }

    /// Wait for an eventfd that others can write *and read*: what is in it is never read here, so
    /// that nobody can make that block. Each write is told once.
    ///
    /// # Errors
    /// As for [`add`](Self::add).
    pub fn add_shared(&self, fd: impl AsFd, token: Token) -> Result<(), Errno> {
        let data = epoll::EventData::new_u64(token);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, fd, data, flags)
    }

    /// Forget a descriptor. Closing it does the same, unless it was duplicated.
    pub fn remove(&self, fd: impl AsFd) {
        // One that was never added is gone as well.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// A handle that ends waits.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.event))
    }

    /// Sleep until something happens or the time is over; without a time, as long as it takes.
    ///
    /// # Errors
    /// The kernel refuses. A signal is no error: nothing happened.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Woken, Errno> {
        let limit = limit.map(|limit| Timespec::try_from(limit).unwrap_or(LONG));
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; EVENTS];
        // syscalls: epoll_pwait2
        let count = match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        let mut woken = Woken::default();
        for event in events.iter().take(count) {
            match event.data.u64() {
                WOKEN => woken.by_waker = self.take_wake(),
                token => woken.tokens.push(token),
            }
        }
        Ok(woken)
    }

    /// Whether a wake is there; it is used up.
    fn take_wake(&self) -> bool {
        rustix::io::read(&*self.event, &mut [0; 8]).is_ok()
    }
}

/// Longer than anybody waits.
const LONG: Timespec = Timespec {
    tv_sec: 1 << 30,
    tv_nsec: 0,
};

impl Waker {
    /// End the wait that goes on now, or the next one.
    pub fn wake(&self) {
        // It fails only when it was called 2^64 times without a wait.
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
