//! What happens on a socket, its error queue included.
//!
//! tokio takes a socket on whose error queue something lies for one whose other side is gone, and ever after for
//! one that can be written to. So the socket is watched by an epoll of its own, and tokio watches that.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;

use crate::raw::zero_copy;

/// What happens on one socket. One task at a time waits for it.
#[derive(Debug)]
pub(super) struct Events {
    epoll: AsyncFd<OwnedFd>,
    /// Nobody has found it otherwise since it was said.
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Events {
    pub(super) fn new(socket: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Errors are told unasked.
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, socket, EventData::new_u64(0), interest)?;
        Ok(Self {
            epoll: zero_copy::register_epoll(epoll)?,
            readable: false,
            writable: false,
        })
    }

    /// Take in what has happened next; whether it may concern the error queue. While nothing has, the task is
    /// woken when something does.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            let mut ready = ready!(self.epoll.poll_read_ready(context))?;
            let mut events = [const { no_event() }; 1];
            // syscalls: epoll_pwait2
            let no_wait = Some(&Timespec::default());
            let count = epoll::wait(ready.get_inner(), &mut events, no_wait)?;
            let [Event { flags, .. }] = events;
            if count > 0 {
                let ends = EventFlags::RDHUP | EventFlags::HUP;
                self.readable |= flags.intersects(EventFlags::IN | ends);
                self.writable |= flags.intersects(EventFlags::OUT | EventFlags::HUP);
                return Poll::Ready(Ok(flags.contains(EventFlags::ERR)));
            }
            ready.clear_ready();
        }
    }
}

const fn no_event() -> Event {
    Event {
        flags: EventFlags::empty(),
        data: EventData::new_u64(0),
    }
}
