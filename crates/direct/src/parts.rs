//! What a group needs of the system. It can outlive the process that serves the group: the next
//! one adopts it, and finds the VMs as they are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use window::ivshmem::{Doorbell, Server};

use crate::control::Control;
use crate::policy::check_count;
use crate::{DirectError, io};

/// The control window, and what each member has of its own, in the order of their ids.
#[derive(Debug)]
pub struct Parts {
    pub(crate) control: Control,
    pub(crate) seats: Vec<Seat>,
}

/// A member's place.
#[derive(Debug)]
pub struct Seat {
    pub(crate) name: String,
    /// Where its QEMU connects for the window.
    pub(crate) server: Server,
    /// The same for every VM that ever has this place, so that nobody has to be told of another.
    pub(crate) doorbell: Doorbell,
}

impl Parts {
    /// Make them: sockets are in `folder`, which is there.
    ///
    /// # Errors
    /// Too many members, or the kernel refuses.
    pub fn make(folder: &Path, names: &[String]) -> Result<Self, DirectError> {
        check_count(names.len())?;
        let seat = |name: &String| {
            let socket = crate::paths::socket(folder, name);
            let server = Server::bind(&socket);
            Ok(Seat {
                name: name.clone(),
                server: io(server, || format!("listen at {}", socket.display()))?,
                doorbell: io(Doorbell::new(), || "make a doorbell".to_owned())?,
            })
        };
        Ok(Self {
            control: Control::new()?,
            seats: names.iter().map(seat).collect::<Result<_, DirectError>>()?,
        })
    }

    /// Take over what another process made: its window, and its members in the same order.
    ///
    /// # Errors
    /// Too many members.
    pub fn adopt(window: OwnedFd, seats: Vec<Seat>) -> Result<Self, DirectError> {
        check_count(seats.len())?;
        let control = Control::adopt(window);
        Ok(Self { control, seats })
    }

    /// The window.
    #[must_use]
    pub fn window(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The members' places.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }
}

impl Seat {
    /// Take over a place that another process made.
    #[must_use]
    pub fn adopt(name: String, listener: OwnedFd, doorbell: OwnedFd) -> Self {
        Self {
            name,
            server: Server::adopt(listener),
            doorbell: Doorbell::adopt(doorbell),
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The socket that its QEMU connects to.
    #[must_use]
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.server.as_fd()
    }

    /// Its doorbell.
    #[must_use]
    pub fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
