//! The process of a trust group of the direct channel. The supervisor ([`crate::serve`]) starts it with a control
//! socket as standard input. The process serves until the supervisor sends the order to stop, or is gone.
//!
//! The supervisor sends it the group's window and doorbells, so that the next process can continue with
//! them. The process is not confined, because it talks to QEMUs by their monitors and reads in `/proc` which files
//! they have open. It receives nothing from guests.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use direct::{DirectError, Group, GroupResources, MemberResources, Policies};
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
    /// The next member, by name. Carries its doorbell.
    Member(String),
    /// All members were sent. Carries the window.
    Begin {
        /// The group with its policies.
        group: TrustGroup,
    },
    /// A member must leave, or may join again.
    SetLeft {
        /// Its name.
        vm: String,
        /// Whether it must leave.
        left: bool,
    },
    /// Report the state: an [`Event::Member`] for each member, then [`Event::End`].
    Report,
    /// Unplug all devices from the VMs, and end.
    Stop,
}

/// Process to supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The state of a member.
    Member(GroupMemberStatus),
    /// The report is complete.
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
        group.advance()?;
        group.wait(Some(control.as_fd()))?;
    }
    group.close()
}

/// Carries out all orders that wait. Returns false if the process must end.
fn handle_orders(control: &ControlSocket, group: &mut Group) -> bool {
    loop {
        match control.receive::<Order>() {
            Ok(Some((Order::SetLeft { vm, left }, _))) => {
                if !group.set_left(&vm, left) {
                    tracing::error!(
                        "internal error, report it as a bug: the supervisor named a VM {vm} that is \
                        not in the group"
                    );
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

/// Sends a report. The supervisor requests one at a time, so the socket has room for it.
fn report(control: &ControlSocket, group: &Group) -> io::Result<()> {
    for status in group.statuses() {
        control.send(&Event::Member(status.into()), None)?;
    }
    control.send(&Event::End, None)
}

/// Receives the group from the supervisor.
fn take_parts(control: &ControlSocket) -> Result<(GroupResources, Policies), ProcessError> {
    let mut member_resources = Vec::new();
    loop {
        let waited = poll(&mut [PollFd::new(control, PollFlags::IN)], None);
        waited.map_err(|error| ProcessError::System(error.into()))?;
        let order = match control.receive::<Order>() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            order => order.map_err(ProcessError::System)?,
        };
        match order {
            Some((Order::Member(name), Some(doorbell))) => {
                member_resources.push(MemberResources::adopt(name, doorbell));
            }
            Some((Order::Begin { group }, Some(window))) => {
                let parts = GroupResources::adopt(window, member_resources)
                    .map_err(ProcessError::Direct)?;
                return Ok((parts, group.policies()));
            }
            _ => return Err(ProcessError::System(io::ErrorKind::InvalidData.into())),
        }
    }
}
