//! Events of a socket, including its error queue.
//!
//! tokio treats a socket with a message on its error queue as closed by the peer, and from then on as always writable.
//! Therefore the socket is registered with an epoll descriptor of its own, and that descriptor with tokio.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::time::Timespec;
use tokio::io::unix::AsyncFd;

use crate::raw::zero_copy;

/// The events of one socket. One task at a time waits for them.
#[derive(Debug)]
pub(super) struct Events {
    epoll: AsyncFd<OwnedFd>,
    /// Whether the last event said that the socket is readable (writable), and no call has blocked since.
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl Events {
    pub(super) fn new(socket: impl AsFd) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // The kernel reports errors without a request.
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, socket, EventData::new_u64(0), interest)?;
        Ok(Self {
            epoll: zero_copy::register_epoll(epoll)?,
            readable: false,
            writable: false,
        })
    }

    /// Processes the next event and returns whether the error queue may have a message. If there is no event, the task is
    /// woken at the next one.
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
