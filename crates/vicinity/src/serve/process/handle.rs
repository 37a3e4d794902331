//! The supervisor's end of a data plane.

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
use vhost::raw::Foreign;

use super::launch::{Duty, Ending, Launch};
use crate::serve::process::deadline::sleep_until;

/// A process that is killed has ended within so long, unless a thread of it waits in the kernel for
/// something that does not come. Then it is left behind.
const KILLED: Duration = Duration::from_millis(500);

/// Orders on their way to a data plane, in order. An order stays here until the control socket
/// took it, so none is lost when the data plane is behind. Their number is bounded by what a
/// network can ask for (one attachment for each port, one report) and by the changes that are made
/// until a data plane that does not take them is ended.
#[derive(Debug)]
pub(in crate::serve) struct Orders<O = Order>(VecDeque<(O, Option<Foreign>)>);

impl<O> Default for Orders<O> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<O: Serialize> Orders<O> {
    pub(in crate::serve) fn push(&mut self, order: O, fd: Option<OwnedFd>) {
        self.0.push_back((order, fd.map(Foreign::from)));
    }

    /// Send what the socket takes now.
    ///
    /// # Errors
    /// `WouldBlock` when there is more; any other error means that the data plane is gone.
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

/// A running data plane, which takes orders `O`.
#[derive(Debug)]
pub(in crate::serve) struct Process<O = Order> {
    socket: ControlSocket,
    /// The same socket once more: tells when it can be used.
    ready: UnixStream,
    pub(in crate::serve) orders: Orders<O>,
    /// None once it has ended and said why.
    ending: Option<Ending>,
    /// It was killed, and is waited for until then.
    killed: Option<Instant>,
}

impl<O: Serialize> Process<O> {
    /// Start a process for a duty.
    pub(in crate::serve) fn start(duty: Duty<'_>, launch: &Launch) -> io::Result<Self> {
        let (ours, theirs) = ControlSocket::pair()?;
        let ending = launch.start(duty, theirs)?;
        let same = ours.as_fd().try_clone_to_owned()?;
        Ok(Self {
            socket: ours,
            ready: UnixStream::from_std(same.into())?,
            orders: Orders::default(),
            ending: Some(ending),
            killed: None,
        })
    }

    /// Its process id, while it runs and is one.
    pub(in crate::serve) fn id(&self) -> Option<u32> {
        self.ending.as_ref()?.id()
    }

    /// The next event; `None` once the data plane is gone, or was killed and does not go, and never anything again after
    /// that. Sends waiting orders meanwhile. Cancel safe.
    pub(in crate::serve) async fn next_event<E: DeserializeOwned>(&mut self) -> Option<E> {
        Some(self.next_with_descriptor().await?.0)
    }

    /// The same, with the descriptor that came along, if one did. Cancel safe.
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
                    // Gone, which receiving will tell; what it said before still counts.
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
                    tracing::error!(%error, "our bug: the data plane said something unreadable");
                    return None;
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }

    /// Why the data plane ended, after [`Self::next_event`] returned `None`. Nothing of it is
    /// left when this returns, unless it says so: a process that the kernel does not let go still has
    /// its descriptors.
    pub(in crate::serve) async fn exit_reason(&mut self) -> String {
        match self.ending.take() {
            None => "ended".to_owned(),
            Some(ending) => ending.exit_reason().await,
        }
    }

    /// End it by an order; whether it ended in this time. Events `E` that it still sends are of no
    /// interest any more.
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

    /// End it by force; [`Self::next_event`] will return `None`, whether the kernel lets it go or not.
    pub(in crate::serve) fn kill(&mut self) {
        if let Some(ending) = &mut self.ending {
            ending.kill();
            self.killed = Some(Instant::now() + KILLED);
        }
    }
}
