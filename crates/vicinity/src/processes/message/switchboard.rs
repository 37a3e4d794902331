//! The data plane of the message plane: it joins the members. The supervisor sends it all descriptors that it uses,
//! and it is confined before the first VM connects.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use message::MessageError;
use message::remote::{Guest, Member, Place, Resources, Switchboard};
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::Duty;
use switch::control::ControlSocket;

use super::protocol::{Accepted, Event, Order};
use crate::processes::start::{ProcessError, log_gaps, set_up, take_control_socket};
use crate::status::MemberStatus;

/// Joins the members that the supervisor sends.
pub(crate) fn run() -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    set_up("messages").map_err(ProcessError::System)?;
    rustix::param::page_size();
    // Maps memory, and asks what the kernel can do, before the sandbox forbids it.
    let parts = parts(&control).map_err(ProcessError::System)?;
    let board = parts.adopt().and_then(Switchboard::with);
    let mut board = board.map_err(ProcessError::Messages)?;
    board.watch(&control).map_err(ProcessError::Messages)?;
    let _asked = window::doorbell::fences_all();
    let gaps = sandbox::enter_process().into_iter();
    log_gaps(gaps.chain(sandbox::enter_thread(Duty::Messages)));
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
            // If the socket is full, all three are sent again later. Any other error means that the supervisor is
            // gone, so they are not.
            let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            !told.any(|told| told.is_err_and(full))
        });
        !board.is_called() || handle_orders(&control, board)
    });
    served.map_err(ProcessError::Messages)
}

impl Accepted {
    /// Returns the VM, once all three descriptors arrived.
    fn whole(self) -> Option<Guest> {
        Some(Guest {
            socket: self.socket?,
            bell: self.bell?,
            doorbell: self.doorbell?,
        })
    }
}

/// What the supervisor sent.
#[derive(Default)]
struct Received {
    members: Vec<Member>,
    /// By the number of the member.
    guests: BTreeMap<usize, Accepted>,
    regions: Vec<OwnedFd>,
}

impl Received {
    fn adopt(mut self) -> Result<Resources, MessageError> {
        let members = self.members.into_iter().enumerate();
        let places = members.map(|(number, member)| {
            let guest = self.guests.remove(&number).and_then(Accepted::whole);
            Place::adopt(member, guest)
        });
        Resources::adopt(self.regions, places.collect())
    }

    /// Returns the guest's descriptors of the last member.
    fn guest(&mut self) -> &mut Accepted {
        let number = self.members.len().saturating_sub(1);
        self.guests.entry(number).or_default()
    }
}

/// Receives the members and regions from the supervisor.
fn parts(control: &ControlSocket) -> io::Result<Received> {
    let mut parts = Received::default();
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

/// Carries out one order. Returns false if the process must end.
fn handle_orders(control: &ControlSocket, board: &mut Switchboard) -> bool {
    match control.receive::<Order>() {
        Ok(Some((Order::Report, _))) => report(control, board).is_ok(),
        Ok(Some((Order::Admit(member), Some(socket)))) => {
            // The event comes first: once the data plane has begun a handshake, no other data plane may get this
            // connection.
            let told = control.send(&Event::Admitting(member), None).is_ok();
            if told && !board.admit(member, socket) {
                tracing::debug!(
                    member,
                    "rejected a connection: the member already has one, or the kernel refused it"
                );
            }
            told
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

/// Sends a report. The supervisor requests one at a time, so the socket has room for it.
fn report(control: &ControlSocket, board: &Switchboard) -> io::Result<()> {
    for member in board.report() {
        let member = Box::new(MemberStatus::from(member));
        control.send(&Event::Member(member), None)?;
    }
    control.send(&Event::End, None)
}
