//! What the supervisor and the processes of the message plane tell each other.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};
use switch::control::ControlSocket;

use crate::status::{MemberStatus, UplinkStatus};

/// Supervisor to data plane, and to uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Expect a member. If its VM runs, its [`Order::Bell`], [`Order::Doorbell`] and [`Order::Guest`] come
    /// next.
    Member {
        /// Its name.
        name: String,
        /// Its trust group.
        group: Option<String>,
        /// Its NIC id, if that is not the name's.
        nic: Option<u64>,
        /// It is the uplink.
        uplink: bool,
    },
    /// What interrupts the member's VM. Carries one descriptor: an eventfd.
    Bell,
    /// What the member's VM wakes the host with. Carries one descriptor: an eventfd.
    Doorbell,
    /// The member's VM runs. Carries one descriptor: the socket that another data plane accepted.
    Guest,
    /// The next of the regions. Carries one descriptor.
    Region,
    /// All has been said.
    Begin,
    /// A VM, or a process of the host, has connected as the member of this number. Carries its socket.
    Admit(usize),
    /// To the uplink: a member, as other hosts know it.
    Face {
        /// Its NIC id.
        nic: u64,
        /// Its name.
        name: String,
    },
    /// To the uplink: all of them have been said. Carries the socket on the interface.
    Uplink {
        /// After how long a host that does not answer is given up.
        give_up: Duration,
    },
    /// Say how it is: an [`Event::Member`] for each, then [`Event::End`].
    Report,
    /// End.
    Stop,
}

/// Data plane to supervisor, and uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// How a member is.
    Member(Box<MemberStatus>),
    /// There is no other. Of a gateway or an uplink: it is well.
    End,
    /// What interrupts the VM that was accepted as the member of this number. Carries one descriptor,
    /// an eventfd, for the next data plane, as the two that come next.
    Bell(usize),
    /// What it wakes the host with: an eventfd.
    Doorbell(usize),
    /// A VM, or a process of the host, was accepted as the member of this number: its socket.
    Accepted(usize),
    /// What an [`Order::Admit`] carried is looked at from now on.
    Admitting(usize),
    /// Of an uplink: what it has done.
    Uplink(UplinkStatus),
}

/// What came so far of a VM that was accepted.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) bell: Option<OwnedFd>,
    pub(crate) doorbell: Option<OwnedFd>,
}

/// Answer if the supervisor asks how this gateway or uplink is. False when that is to end: the supervisor
/// says so, or is gone.
pub(crate) fn keep_running(control: &ControlSocket) -> bool {
    // Nearly always nothing was said, which is asked without memory for an order.
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    if let Err(Errno::AGAIN | Errno::INTR) = recv(control, &mut [0; 1][..], flags) {
        return true;
    }
    match control.receive::<Order>() {
        // There is room: the supervisor asks again only after an answer.
        Ok(Some((Order::Report, _))) => control.send(&Event::End, None).is_ok(),
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}
