//! The supervisor's handle of a process: the control socket, the orders that wait, and how the process ended.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use switch::control::{ControlSocket, Order};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::Instant;
use vhost::raw::ForeignFd;

use super::launch::{Ending, Launch, ProcessKind};
use crate::serve::process::deadline::sleep_until;

/// Time in which a killed process ends, unless one of its threads waits in the kernel for an event that does not
/// come. The supervisor abandons such a process.
const KILLED: Duration = Duration::from_millis(500);

/// The queue of orders for a process. An order stays here until the control socket accepts it, so no order is
/// lost when the process is slow. The length of the queue is bounded: by what a network can ask for (one
/// attachment for each port, one report), and by the changes that clients make until the supervisor ends a process
/// that does not read its orders.
#[derive(Debug)]
pub(in crate::serve) struct Orders<O = Order>(VecDeque<(O, Option<ForeignFd>)>);

impl<O> Default for Orders<O> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<O: Serialize> Orders<O> {
    pub(in crate::serve) fn push(&mut self, order: O, fd: Option<OwnedFd>) {
        self.0.push_back((order, fd.map(ForeignFd::from)));
    }

    /// Sends as many orders as the socket accepts now.
    ///
    /// # Errors
    /// `WouldBlock` if orders are left; any other error means that the process is gone.
    fn send(&mut self, socket: &ControlSocket) -> io::Result<()> {
        while let Some((order, fd)) = self.0.front() {
            socket.send(order, fd.as_ref().map(AsFd::as_fd))?;
            self.0.pop_front();
        }
        Ok(())
    }

    #[cfg(test)]
    pub(in crate::serve) fn take(&mut self) -> Vec<O> {
        self.0.drain(..).map(|(order, _)| order).collect()
    }
}

/// A process that takes orders `O`.
#[derive(Debug)]
pub(in crate::serve) struct Process<O = Order> {
    socket: ControlSocket,
    /// A duplicate of the socket, by which the runtime learns when it is readable or writable.
    ready: UnixStream,
    pub(in crate::serve) orders: Orders<O>,
    /// None once the process has ended and the reason was read.
    ending: Option<Ending>,
    /// The process was killed; the supervisor waits for its end until this time.
    killed: Option<Instant>,
}

impl<O: Serialize> Process<O> {
    /// Starts a process for a kind.
    pub(in crate::serve) fn start(kind: ProcessKind<'_>, launch: &Launch) -> io::Result<Self> {
        let (ours, theirs) = ControlSocket::pair()?;
        let ending = launch.start(kind, theirs)?;
        let same = ours.as_fd().try_clone_to_owned()?;
        Ok(Self {
            socket: ours,
            ready: UnixStream::from_std(same.into())?,
            orders: Orders::default(),
            ending: Some(ending),
            killed: None,
        })
    }

    /// Returns its process id while it runs; none for the threads that stand in for processes in tests.
    pub(in crate::serve) fn id(&self) -> Option<u32> {
        self.ending.as_ref()?.id()
    }

    /// Returns the next event, and sends waiting orders meanwhile. Returns `None` once the process is gone, or if it
    /// was killed and the kernel does not end it; later calls never return. Cancel safe.
    pub(in crate::serve) async fn next_event<E: DeserializeOwned>(&mut self) -> Option<E> {
        Some(self.next_with_descriptor().await?.0)
    }

    /// Returns the next event and the descriptor that came with it, if there is one. Cancel safe.
    pub(in crate::serve) async fn next_with_descriptor<E: DeserializeOwned>(
        &mut self,
    ) -> Option<(E, Option<OwnedFd>)> {
        if self.ending.is_none() {
            return std::future::pending().await;
        }
        loop {
            let interest = match self.orders.0.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            tokio::select! {
                ready = self.ready.ready(interest) => ready.ok()?,
                () = sleep_until(self.killed) => return None,
            };
            let socket = &self.socket;
            match self
                .ready
                .try_io(Interest::WRITABLE, || self.orders.send(socket))
            {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    // The process is gone. Receiving reports that, after the events that it sent before.
                    self.orders = Orders::default();
                }
                _ => {}
            }
            match self
                .ready
                .try_io(Interest::READABLE, || socket.receive::<E>())
            {
                Ok(Some(both)) => return Some(both),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    tracing::error!(%error, "internal error, report it as a bug: cannot decode an event of the \
                        process");
                    return None;
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Returns why the process ended, after [`Self::next_event`] returned `None`. Nothing of the process is left when
    /// this returns, unless the text says so: a process that the kernel does not end keeps its descriptors.
    pub(in crate::serve) async fn exit_reason(&mut self) -> String {
        match self.ending.take() {
            None => "ended".to_owned(),
            Some(ending) => ending.exit_reason().await,
        }
    }

    /// Sends the order to end and returns whether the process ended within `limit`. Ignores the events `E` that
    /// the process still sends.
    pub(in crate::serve) async fn stop<E: DeserializeOwned>(
        &mut self,
        order: O,
        limit: Duration,
    ) -> bool {
        self.orders.push(order, None);
        let ended = async {
            while self.next_event::<E>().await.is_some() {}
            self.exit_reason().await
        };
        tokio::time::timeout(limit, ended).await.is_ok()
    }

    /// Kills the process. [`Self::next_event`] will return `None`, whether the kernel ends the process or not.
    pub(in crate::serve) fn kill(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.kill();
            self.killed = Some(Instant::now() + KILLED);
        }
    }
}
