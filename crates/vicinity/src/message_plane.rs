//! The processes of the message plane: its *data plane*, which joins the members, the *gateway* of
//! this host's own programs, and the *uplink* ([`crate::uplink`]). They are started by the supervisor
//! ([`crate::serve`]) with a control socket as standard input, and serve until told to stop or until
//! it is gone.
//!
//! The data plane is given all it uses, and is confined before the first VM connects. The gateway
//! opens programs' sockets by their names, so it is not; what the data plane says to it is
//! checked as what a VM says is.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use message::MessageError;
use message::far::{Gateway, Member, Switchboard, Way};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sandbox::Duty;
use serde::{Deserialize, Serialize};
use switch::control::ControlSocket;
use window::ivshmem::Server;

use crate::data_plane::{DataPlaneError, settle, take_control};
use crate::plane::{BOARD, HOST, socket};
use crate::status::MemberStatus;

/// Supervisor to data plane, and to uplink.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Expect a member. Carries one descriptor: the socket that its VM will connect to.
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
    /// All members have been said.
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

/// Data plane to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// How a member is.
    Member(Box<MemberStatus>),
    /// There is no other.
    End,
}

/// Join the members that the supervisor says.
pub(crate) fn run() -> Result<(), DataPlaneError> {
    sandbox::close_inherited().map_err(DataPlaneError::System)?;
    let control = take_control().map_err(DataPlaneError::Control)?;
    settle("messages").map_err(DataPlaneError::System)?;
    rustix::param::page_size();
    // Before the sandbox closes: memory is made, and what the kernel can do is asked.
    let members = members(&control).map_err(DataPlaneError::System)?;
    let mut board = Switchboard::with(members).map_err(DataPlaneError::Messages)?;
    board.watch(&control).map_err(DataPlaneError::Messages)?;
    let _asked = window::doorbell::fences_all();
    let gaps = sandbox::enter_process();
    for gap in gaps
        .into_iter()
        .chain(sandbox::enter_thread(Duty::Messages))
    {
        tracing::warn!("the sandbox has a gap: {gap}; see `vicinity doctor`");
    }
    let served = board.serve(|board| !board.is_called() || obey(&control, board));
    served.map_err(DataPlaneError::Messages)
}

/// The members, with their sockets.
fn members(control: &ControlSocket) -> io::Result<Vec<(Member, Server)>> {
    let mut members = Vec::new();
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        match control.receive::<Order>() {
            Ok(Some((
                Order::Member {
                    name,
                    group,
                    nic,
                    uplink,
                },
                Some(listener),
            ))) => {
                let member = Member {
                    name,
                    group,
                    nic,
                    uplink,
                };
                members.push((member, Server::adopt(listener)));
            }
            Ok(Some((Order::Begin, _))) => return Ok(members),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
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
