//! The protocol between the supervisor and the process of a space.

use std::fs::File;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};

use memory_plane::Figures;
use serde::{Deserialize, Serialize};
use space::estimator::Window;

use crate::config::Space;

/// Supervisor to process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Carries the memory of its slots.
    Slots,
    /// Carries the memory of its ledger.
    Ledger,
    /// Carries the socket that clients connect to, if there are to be any.
    Clients,
    /// Carries the socket that the VM's QEMU connects to. Begin.
    Begin(Box<Space>, Size),
    /// Report the figures: an [`Event::Report`].
    Report,
    /// Report what has happened: an [`Event::Window`].
    Window,
    /// Carries the requested connection to the store.
    Connected,
    /// The connection to the store failed, for this reason.
    Unreachable(String),
    /// Take another size, and report the result: an [`Event::Sized`].
    Resize(Size),
    /// Send at most so many bytes a second; without a number, there is no limit.
    Rate(Option<u64>),
    /// End.
    Stop,
}

/// What the supervisor sends a process before it serves.
pub(crate) struct Setting<'a> {
    pub(crate) space: &'a Space,
    pub(crate) size: Size,
    /// The slots', and the ledger's.
    pub(crate) memory: &'a (File, File),
    pub(crate) clients: Option<&'a TcpListener>,
    /// Where the VM's QEMU connects.
    pub(crate) vm_socket: BorrowedFd<'a>,
}

impl<'a> Setting<'a> {
    /// Returns the orders, in the order in which the process expects them.
    pub(crate) fn orders(&self) -> impl Iterator<Item = (Order, BorrowedFd<'a>)> {
        let (slots, ledger) = self.memory;
        let begin = Order::Begin(Box::new(self.space.clone()), self.size);
        let memory = [
            (Order::Slots, slots.as_fd()),
            (Order::Ledger, ledger.as_fd()),
        ];
        let clients = self
            .clients
            .map(|clients| (Order::Clients, clients.as_fd()));
        memory
            .into_iter()
            .chain(clients)
            .chain([(begin, self.vm_socket)])
    }
}

/// Process to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The figures.
    Report(Figures),
    /// What has happened since the last window.
    Window(Window),
    /// Requests a connection to the store that the space pushes to: an [`Order::Connected`] or an
    /// [`Order::Unreachable`].
    Connect,
    /// Slots that may be in use now: as many as the order said, or those in use if they are more.
    Sized(u32),
}

/// How large a space is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// Slots that may be in use.
    pub(crate) slots: u32,
    /// Slots that it may get: a file that needs more is refused.
    pub(crate) limit: u32,
    /// Slots that its memory has places for; no process ever has more.
    pub(crate) most: u32,
}
