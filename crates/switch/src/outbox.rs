//! Events on their way to the supervisor. None is lost when it is slow to read.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::event::epoll;

use crate::control::{ControlSocket, Event, Order};
use crate::event_key::EventKey;

/// The data plane's end of the conversation.
#[derive(Debug)]
pub(crate) struct Outbox {
    control: ControlSocket,
    waiting: VecDeque<Event>,
    /// The kernel is to tell when the socket takes more.
    watched: bool,
}

impl Outbox {
    /// Speak with a supervisor.
    #[must_use]
    pub(crate) fn new(control: ControlSocket) -> Self {
        Self {
            control,
            waiting: VecDeque::new(),
            watched: false,
        }
    }

    /// Tell the supervisor, now or as soon as it reads.
    pub(crate) fn send(&mut self, event: Event) {
        self.waiting.push_back(event);
        self.flush();
    }

    /// Send what waits, as far as the socket takes it.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.waiting.front() {
            match self.control.send(event, None) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // A supervisor that is gone is noticed when orders are read.
                _ => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Have the kernel tell by `poll` when the socket takes more, for as long as something waits.
    pub(crate) fn watch(&mut self, poll: &OwnedFd) {
        let waits = !self.waiting.is_empty();
        if waits == self.watched {
            return;
        }
        let mut interest = epoll::EventFlags::IN;
        interest.set(epoll::EventFlags::OUT, waits);
        // syscalls: epoll_ctl
        match epoll::modify(poll, &self.control, EventKey::Control.data(), interest) {
            Ok(()) => self.watched = waits,
            Err(error) => tracing::error!(%error, "events may reach the supervisor late"),
        }
    }

    /// The next order.
    ///
    /// # Errors
    /// As [`ControlSocket::receive`].
    pub(crate) fn receive(&self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        self.control.receive()
    }
}
