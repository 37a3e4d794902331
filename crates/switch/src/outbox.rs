//! The queue of events for the supervisor. No event is lost when the supervisor reads slowly.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use rustix::event::epoll;

use crate::control::{ControlSocket, Event, Order};
use crate::event_key::EventKey;

/// The data plane's end of the control socket, with events that wait.
#[derive(Debug)]
pub(crate) struct Outbox {
    control: ControlSocket,
    waiting: VecDeque<Event>,
    /// The epoll set reports when the socket is writable.
    watched: bool,
}

impl Outbox {
    /// Creates an outbox for this control socket.
    #[must_use]
    pub(crate) fn new(control: ControlSocket) -> Self {
        Self {
            control,
            waiting: VecDeque::new(),
            watched: false,
        }
    }

    /// Sends an event to the supervisor, now or as soon as the socket has room.
    pub(crate) fn send(&mut self, event: Event) {
        self.waiting.push_back(event);
        self.flush();
    }

    /// Sends the events that wait, as far as the socket has room.
    pub(crate) fn flush(&mut self) {
        while let Some(event) = self.waiting.front() {
            match self.control.send(event, None) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Reading orders detects a supervisor that is gone.
                _ => drop(self.waiting.pop_front()),
            }
        }
    }

    /// Watches the socket for writability in the epoll set `poll`, while events wait.
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
            Err(error) => {
                tracing::error!(%error, "cannot wait for the control socket; events may reach the supervisor late");
            }
        }
    }

    /// Returns the next order.
    ///
    /// # Errors
    /// See [`ControlSocket::receive`].
    pub(crate) fn receive(&self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        self.control.receive()
    }
}
