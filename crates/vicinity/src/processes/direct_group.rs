//! The process that serves a trust group of the direct channel: started by the supervisor
//! ([`crate::serve`]) with a control socket as standard input, it serves until told to stop or
//! until the supervisor is gone.
//!
//! It is given the group's window, doorbells and sockets, so that its successor can go on with
//! them. It speaks with QEMUs by their monitors and looks into `/proc` for what they hold, so it is
//! not confined. No guest says anything to it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use direct::{DirectError, Group, Parts, Policies, Seat};
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};
use switch::control::ControlSocket;

use super::start::{ProcessError, set_up, take_control_socket};
use crate::config::TrustGroup;
use crate::runtime_paths::direct_folder;
use crate::status::GroupMemberStatus;

/// Supervisor to process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The next member. Carries the socket that its QEMU will connect to.
    Member(String),
    /// Of the member that was said last. Carries it.
    Doorbell,
    /// All members have been said. Carries the window.
    Begin {
        /// What holds for whom.
        group: TrustGroup,
    },
    /// A member is to leave, or may join again.
    KeepOut {
        /// Its name.
        vm: String,
        /// Which of the two.
        out: bool,
    },
    /// Say how it is: an [`Event::Member`] for each, then [`Event::End`].
    Report,
    /// Take everything away from the VMs, and end.
    Stop,
}

/// Process to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// How a member is.
    Member(GroupMemberStatus),
    /// There is no other.
    End,
}

/// Serves the group of this name.
pub(crate) fn run(runtime_dir: &Path, group: &str) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    let _span = tracing::error_span!("group", name = group).entered();
    set_up(&format!("direct-{group}")).map_err(ProcessError::System)?;
    let (parts, policies) = take_parts(&control)?;
    let mut group = Group::with(&direct_folder(runtime_dir), parts, policies);
    serve(&control, &mut group).map_err(ProcessError::Direct)
}

fn serve(control: &ControlSocket, group: &mut Group) -> Result<(), DirectError> {
    while handle_orders(control, group) {
        group.turn()?;
        group.wait(Some(control.as_fd()))?;
    }
    group.close()
}

/// Does all that the supervisor has said; false when that is to end.
fn handle_orders(control: &ControlSocket, group: &mut Group) -> bool {
    loop {
        match control.receive::<Order>() {
            Ok(Some((Order::KeepOut { vm, out }, _))) => {
                if !group.keep_out(&vm, out) {
                    tracing::error!("our bug: the group has no VM {vm}");
                }
            }
            Ok(Some((Order::Report, _))) => {
                if report(control, group).is_err() {
                    return false;
                }
            }
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => return false,
        }
    }
}

/// The supervisor asks one question at a time, so there is room for the answer.
fn report(control: &ControlSocket, group: &Group) -> io::Result<()> {
    for standing in group.standings() {
        control.send(&Event::Member(standing.into()), None)?;
    }
    control.send(&Event::End, None)
}

/// The group, as the supervisor says it.
fn take_parts(control: &ControlSocket) -> Result<(Parts, Policies), ProcessError> {
    let mut seats = Vec::new();
    let mut listeners: Option<(String, OwnedFd)> = None;
    loop {
        let waited = poll(&mut [PollFd::new(control, PollFlags::IN)], None);
        waited.map_err(|error| ProcessError::System(error.into()))?;
        let order = match control.receive::<Order>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            order => order.map_err(ProcessError::System)?,
        };
        match (order, listeners.take()) {
            (Some((Order::Member(name), Some(listener))), None) => {
                listeners = Some((name, listener));
            }
            (Some((Order::Doorbell, Some(doorbell))), Some((name, listener))) => {
                seats.push(Seat::adopt(name, listener, doorbell));
            }
            (Some((Order::Begin { group }, Some(window))), None) => {
                let parts = Parts::adopt(window, seats).map_err(ProcessError::Direct)?;
                return Ok((parts, group.policies()));
            }
            _ => return Err(ProcessError::System(io::ErrorKind::InvalidData.into())),
        }
    }
}
