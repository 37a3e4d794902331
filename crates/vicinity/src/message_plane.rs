//! The processes of the message plane: its *data plane*, which joins the members, the *gateway* of
//! this host's own programs, and the *uplink* ([`crate::uplink`]). They are started by the supervisor
//! ([`crate::serve`]) with a control socket as standard input, and serve until told to stop or until
//! it is gone.
//!
//! The data plane is given all it uses, and is confined before the first VM connects. The gateway
//! opens programs' sockets by their names, so it is not; what the data plane says to it is
//! checked as what a VM says is.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use message::MessageError;
use message::far::{Gateway, Member, Parts, Place, Switchboard, Way};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sandbox::Duty;
use serde::{Deserialize, Serialize};
use switch::control::ControlSocket;

use crate::data_plane::{DataPlaneError, settle, take_control};
use crate::plane::{BOARD, HOST, socket};
use crate::status::{MemberStatus, UplinkStatus};

/// Supervisor to data plane, and to uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Expect a member. Carries one descriptor: the socket that its VM will connect to. Its
    /// [`Order::Bell`] comes next, and its [`Order::Guest`] if it runs.
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
    /// The member's VM runs. Carries one descriptor: the socket that another data plane accepted.
    Guest,
    /// The next of the regions. Carries one descriptor.
    Region,
    /// All has been said. Carries one descriptor: the doorbell that members ring.
    Begin,
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
    /// There is no other.
    End,
    /// A VM, or a process of the host, was accepted as the member of this number. Carries one
    /// descriptor: its socket, for the next data plane.
    Accepted(usize),
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
        board.tell_accepted(|member, socket| {
            let told = control.send(&Event::Accepted(member), Some(socket));
            // Later, when there is room; never, when the supervisor is gone.
            !told.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        !board.is_called() || obey(&control, board)
    });
    served.map_err(DataPlaneError::Messages)
}

/// What the supervisor hands over.
#[derive(Default)]
struct Handed {
    members: Vec<(Member, OwnedFd)>,
    bells: Vec<OwnedFd>,
    /// By the number of the member.
    guests: BTreeMap<usize, OwnedFd>,
    regions: Vec<OwnedFd>,
    doorbell: Option<OwnedFd>,
}

impl Handed {
    fn adopt(mut self) -> Result<Parts, MessageError> {
        let members = self.members.into_iter().zip(self.bells).enumerate();
        let places = members.map(|(number, ((member, listener), bell))| {
            let guest = self.guests.remove(&number);
            Place::adopt(member, listener, bell, guest)
        });
        let missing = || MessageError::from(Errno::BADF);
        Parts::adopt(
            self.doorbell.ok_or_else(missing)?,
            self.regions,
            places.collect(),
        )
    }
}

/// What is served, and with what.
fn parts(control: &ControlSocket) -> io::Result<Handed> {
    let mut parts = Handed::default();
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        let order = match control.receive::<Order>() {
            Ok(Some((order, Some(fd)))) => (order, fd),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match order {
            (
                Order::Member {
                    name,
                    group,
                    nic,
                    uplink,
                },
                listener,
            ) => {
                let member = Member {
                    name,
                    group,
                    nic,
                    uplink,
                };
                parts.members.push((member, listener));
            }
            (Order::Bell, bell) => parts.bells.push(bell),
            (Order::Guest, socket) => {
                let number = parts.members.len().saturating_sub(1);
                parts.guests.insert(number, socket);
            }
            (Order::Region, region) => parts.regions.push(region),
            (Order::Begin, doorbell) => {
                parts.doorbell = Some(doorbell);
                return Ok(parts);
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Do what the supervisor says; false when that is to end.
fn obey(control: &ControlSocket, board: &Switchboard) -> bool {
    match control.receive::<Order>() {
        Ok(Some((Order::Report, _))) => report(control, board).is_ok(),
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
    let way = Way::Socket(socket(runtime_dir, HOST));
    let run = || -> Result<(), MessageError> {
        let mut gateway = Gateway::join(&board, &way)?;
        gateway.watch(&control)?;
        let control: OwnedFd = control.into();
        gateway.run(|| is_quiet(&control))
    };
    run().map_err(DataPlaneError::Messages)
}

/// Whether the supervisor is there and has said nothing: all it says is to end.
pub(crate) fn is_quiet(control: impl AsFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(
        recv(control, &mut [0; 1][..], flags),
        Err(Errno::AGAIN | Errno::INTR)
    )
}
