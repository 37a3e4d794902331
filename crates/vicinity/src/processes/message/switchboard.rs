//! The processes of the message plane: its *data plane*, which joins the members, the *gateway* of
//! this host's own programs, and the *uplink* ([`crate::processes::message::uplink`]). They are started by the supervisor
//! ([`crate::serve`]) with a control socket as standard input, and serve until told to stop or until
//! it is gone.
//!
//! The data plane is given all it uses, and is confined before the first VM connects. The gateway
//! opens programs' sockets by their names, so it is not; what the data plane says to it is
//! checked as what a VM says is.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use message::MessageError;
use message::remote::{Gateway, Guest, Member, Place, Resources, Switchboard, Transport};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sandbox::Duty;
use serde::{Deserialize, Serialize};
use switch::control::ControlSocket;

use crate::message_uplink::HOST;
use crate::processes::data_plane::{DataPlaneError, settle, take_control};
use crate::runtime_paths::{BOARD, member_socket};
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

/// Join the members that the supervisor says.
pub(crate) fn run() -> Result<(), DataPlaneError> {
    sandbox::close_inherited().map_err(DataPlaneError::System)?;
    let control = take_control().map_err(DataPlaneError::Control)?;
    settle("messages").map_err(DataPlaneError::System)?;
    rustix::param::page_size();
    // Before the sandbox closes: memory is mapped, and what the kernel can do is asked.
    let parts = parts(&control).map_err(DataPlaneError::System)?;
    let board = parts.adopt().and_then(Switchboard::with);
    let mut board = board.map_err(DataPlaneError::Messages)?;
    board.watch(&control).map_err(DataPlaneError::Messages)?;
    let _asked = window::doorbell::fences_all();
    let gaps = sandbox::enter_process();
    for gap in gaps
        .into_iter()
        .chain(sandbox::enter_thread(Duty::Messages))
    {
        tracing::warn!("the sandbox has a gap: {gap}; see `vicinity doctor`");
    }
    let served = board.serve(|board| {
        board.tell_accepted(|member, guest| {
            let events = [
                (Event::Bell(member), guest.bell),
                (Event::Doorbell(member), guest.doorbell),
                (Event::Accepted(member), guest.socket),
            ];
            let mut told = events
                .iter()
                .map(|(event, fd)| control.send(event, Some(*fd)));
            // All of it later, when there is room; never, when the supervisor is gone.
            let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            !told.any(|told| told.is_err_and(full))
        });
        !board.is_called() || obey(&control, board)
    });
    served.map_err(DataPlaneError::Messages)
}

/// What came so far of a VM that was accepted.
#[derive(Debug, Default)]
pub(crate) struct Accepted {
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) bell: Option<OwnedFd>,
    pub(crate) doorbell: Option<OwnedFd>,
}

impl Accepted {
    /// The VM, once all of it came.
    fn whole(self) -> Option<Guest> {
        Some(Guest {
            socket: self.socket?,
            bell: self.bell?,
            doorbell: self.doorbell?,
        })
    }
}

/// What the supervisor hands over.
#[derive(Default)]
struct Handed {
    members: Vec<Member>,
    /// By the number of the member.
    guests: BTreeMap<usize, Accepted>,
    regions: Vec<OwnedFd>,
}

impl Handed {
    fn adopt(mut self) -> Result<Resources, MessageError> {
        let members = self.members.into_iter().enumerate();
        let places = members.map(|(number, member)| {
            let guest = self.guests.remove(&number).and_then(Accepted::whole);
            Place::adopt(member, guest)
        });
        Resources::adopt(self.regions, places.collect())
    }

    /// What is known of the guest of the member that was said last.
    fn guest(&mut self) -> &mut Accepted {
        let number = self.members.len().saturating_sub(1);
        self.guests.entry(number).or_default()
    }
}

/// What is served, and with what.
fn parts(control: &ControlSocket) -> io::Result<Handed> {
    let mut parts = Handed::default();
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        let order = match control.receive::<Order>() {
            Ok(Some(order)) => order,
            Ok(None) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match order {
            (Order::Begin, None) => return Ok(parts),
            (
                Order::Member {
                    name,
                    group,
                    nic,
                    uplink,
                },
                None,
            ) => parts.members.push(Member {
                name,
                group,
                nic,
                uplink,
            }),
            (Order::Bell, Some(bell)) => parts.guest().bell = Some(bell),
            (Order::Doorbell, Some(doorbell)) => parts.guest().doorbell = Some(doorbell),
            (Order::Guest, Some(socket)) => parts.guest().socket = Some(socket),
            (Order::Region, Some(region)) => parts.regions.push(region),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Do what the supervisor says; false when that is to end.
fn obey(control: &ControlSocket, board: &mut Switchboard) -> bool {
    match control.receive::<Order>() {
        Ok(Some((Order::Report, _))) => report(control, board).is_ok(),
        Ok(Some((Order::Admit(member), Some(socket)))) => {
            // Said before: what has been greeted must not be given to another data plane.
            let told = control.send(&Event::Admitting(member), None).is_ok();
            if told && !board.admit(member, socket) {
                tracing::debug!(
                    member,
                    "there is one already, or the kernel refuses: turned away"
                );
            }
            told
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

/// The supervisor asks one question at a time, so there is room for the answer.
fn report(control: &ControlSocket, board: &Switchboard) -> io::Result<()> {
    for member in board.report() {
        let member = Box::new(MemberStatus::from(member));
        control.send(&Event::Member(member), None)?;
    }
    control.send(&Event::End, None)
}

/// Be the gateway of this host's own programs.
pub(crate) fn host(runtime_dir: &Path) -> Result<(), DataPlaneError> {
    let control = take_control().map_err(DataPlaneError::Control)?;
    settle("message-host").map_err(DataPlaneError::System)?;
    let board = runtime_dir.join(BOARD);
    let way = Transport::Socket(member_socket(runtime_dir, HOST));
    let run = || -> Result<(), MessageError> {
        let mut gateway = Gateway::join(&board, &way)?;
        gateway.watch(&control)?;
        gateway.run(|| is_to_go_on(&control))
    };
    run().map_err(DataPlaneError::Messages)
}

/// Answer if the supervisor asks how this gateway or uplink is. False when that is to end: the supervisor
/// says so, or is gone.
pub(crate) fn is_to_go_on(control: &ControlSocket) -> bool {
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
