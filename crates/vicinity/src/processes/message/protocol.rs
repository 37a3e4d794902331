//! The protocol between the supervisor and the processes of the message plane.

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
    /// The next member. If its VM runs, its [`Order::Interrupt`], [`Order::Doorbell`] and [`Order::Connection`] follow.
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
    /// Carries the eventfd that interrupts the member's VM.
    Interrupt,
    /// Carries the eventfd by which the member's VM wakes the host.
    Doorbell,
    /// The member's VM runs. Carries the connection that an earlier data plane accepted.
    Connection,
    /// Carries the memory of the next region.
    Region,
    /// All members and regions were sent.
    Begin,
    /// A VM, or a process of the host, has connected as the member with this number. Carries the connection.
    Admit(usize),
    /// To the uplink: a member, as other hosts see it.
    NamedNic {
        /// Its NIC id.
        nic: u64,
        /// Its name.
        name: String,
    },
    /// To the uplink: all members were sent. Carries the socket on the interface.
    Uplink {
        /// Time after which a host that does not answer counts as failed.
        peer_timeout: Duration,
        /// The interface's name, if the host is a member: programs of the host may serve the interface, too.
        shared: Option<String>,
    },
    /// Report the state: an [`Event::Member`] for each member, then [`Event::End`].
    Report,
    /// End.
    Stop,
}

/// Data plane to supervisor, and uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The state of a member.
    Member(Box<MemberStatus>),
    /// The report is complete. From a gateway or an uplink: it is healthy.
    End,
    /// Carries the eventfd that interrupts the VM that was accepted as the member with this number. The supervisor
    /// keeps it, and those of the next two events, for the next data plane.
    Interrupt(usize),
    /// Carries the eventfd by which this VM wakes the host.
    Doorbell(usize),
    /// A VM, or a process of the host, was accepted as the member with this number. Carries its connection.
    Accepted(usize),
    /// The data plane begins with the connection of an [`Order::Admit`].
    Admitting(usize),
    /// From an uplink: its counters.
    Uplink(UplinkStatus),
}

/// The descriptors of an accepted VM that arrived so far.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) interrupt: Option<OwnedFd>,
    pub(crate) doorbell: Option<OwnedFd>,
}

/// Answers a health check of the supervisor, if there is one. Returns false when this gateway or uplink must end,
/// because the supervisor sent the order to end, or has ended.
pub(crate) fn keep_running(control: &ControlSocket) -> bool {
    // Nearly always there is no order, and this check needs no memory for one.
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
