//! Events on their way to the supervisor. None is lost when it is slow to read.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;

use crate::control::{ControlSocket, Event, Order};

/// The data plane's end of the conversation.
#[derive(Debug)]
pub(crate) struct Outbox {
    control: ControlSocket,
    waiting: VecDeque<Event>,
}

impl Outbox {
    /// Speak with a supervisor.
    #[must_use]
    pub(crate) fn new(control: ControlSocket) -> Self {
        Self {
            control,
            waiting: VecDeque::new(),
        }
    }

    /// Tell the supervisor, now or as soon as it reads.
    pub(crate) fn send(&mut self, event: &Event) {
        self.waiting.push_back(event.clone());
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

    /// The next order.
    ///
    /// # Errors
    /// As [`ControlSocket::receive`].
    pub(crate) fn receive(&self) -> io::Result<Option<(Order, Option<OwnedFd>)>> {
        self.control.receive()
    }
}
