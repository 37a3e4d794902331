//! The data plane of the message plane: it joins the members. The supervisor sends it all descriptors that it uses,
//! and it is confined before the first VM connects.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use message::MessageError;
use message::remote::{Broker, Connection, Member, MemberResources, Resources};
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::ProcessKind;
use switch::control::ControlSocket;

use super::protocol::{Accepted, Event, Order};
use crate::processes::start::{ProcessError, log_missing_stages, set_up, take_control_socket};
use crate::status::MemberStatus;

/// Joins the members that the supervisor sends.
pub(crate) fn run() -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    set_up("messages").map_err(ProcessError::System)?;
    rustix::param::page_size();
    // Maps memory, and asks what the kernel can do, before the sandbox forbids it.
    let resources = receive_resources(&control).map_err(ProcessError::System)?;
    let broker = resources.adopt().and_then(Broker::from_resources);
    let mut broker = broker.map_err(ProcessError::Messages)?;
    broker.watch(&control).map_err(ProcessError::Messages)?;
    let _result = window::doorbell::register_membarrier();
    let missing = sandbox::enter_process().into_iter();
    log_missing_stages(missing.chain(sandbox::enter_thread(ProcessKind::Messages)));
    let served = broker.serve(|broker| {
        broker.report_accepted(|member, connection| {
            let events = [
                (Event::Interrupt(member), connection.interrupt),
                (Event::Doorbell(member), connection.doorbell),
                (Event::Accepted(member), connection.socket),
            ];
            let mut sent = events
                .iter()
                .map(|(event, fd)| control.send(event, Some(*fd)));
            // If the socket is full, all three are sent again later. Any other error means that the supervisor is
            // gone, so they are not.
            let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
            !sent.any(|sent| sent.is_err_and(full))
        });
        !broker.is_watched_ready() || handle_orders(&control, broker)
    });
    served.map_err(ProcessError::Messages)
}

impl Accepted {
    /// Returns the VM, once all three descriptors arrived.
    fn complete(self) -> Option<Connection> {
        Some(Connection {
            socket: self.socket?,
            interrupt: self.interrupt?,
            doorbell: self.doorbell?,
        })
    }
}

/// What the supervisor sent.
#[derive(Default)]
struct ReceivedResources {
    members: Vec<Member>,
    /// By the number of the member.
    accepted: BTreeMap<usize, Accepted>,
    regions: Vec<OwnedFd>,
}

impl ReceivedResources {
    fn adopt(mut self) -> Result<Resources, MessageError> {
        let members = self.members.into_iter().enumerate();
        let members = members.map(|(number, member)| {
            let connection = self.accepted.remove(&number).and_then(Accepted::complete);
            MemberResources::adopt(member, connection)
        });
        Resources::adopt(self.regions, members.collect())
    }

    /// Returns the guest's descriptors of the last member.
    fn accepted(&mut self) -> &mut Accepted {
        let number = self.members.len().saturating_sub(1);
        self.accepted.entry(number).or_default()
    }
}

/// Receives the members and regions from the supervisor.
fn receive_resources(control: &ControlSocket) -> io::Result<ReceivedResources> {
    let mut resources = ReceivedResources::default();
    loop {
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)?;
        let order = match control.receive::<Order>() {
            Ok(Some(order)) => order,
            Ok(None) => return Err(io::ErrorKind::InvalidData.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        };
        match order {
            (Order::Begin, None) => return Ok(resources),
            (
                Order::Member {
                    name,
                    group,
                    nic,
                    uplink,
                },
                None,
            ) => resources.members.push(Member {
                name,
                group,
                nic,
                uplink,
            }),
            (Order::Interrupt, Some(interrupt)) => resources.accepted().interrupt = Some(interrupt),
            (Order::Doorbell, Some(doorbell)) => resources.accepted().doorbell = Some(doorbell),
            (Order::Connection, Some(socket)) => resources.accepted().socket = Some(socket),
            (Order::Region, Some(region)) => resources.regions.push(region),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Carries out one order. Returns false if the process must end.
fn handle_orders(control: &ControlSocket, broker: &mut Broker) -> bool {
    match control.receive::<Order>() {
        Ok(Some((Order::Report, _))) => report(control, broker).is_ok(),
        Ok(Some((Order::Admit(member), Some(socket)))) => {
            // The event comes first: once the data plane has begun a handshake, no other data plane may get this
            // connection.
            let sent = control.send(&Event::Admitting(member), None).is_ok();
            if sent && !broker.admit(member, socket) {
                tracing::debug!(
                    member,
                    "rejected a connection: the member already has one, or the kernel refused it"
                );
            }
            sent
        }
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
        Ok(_) => false,
    }
}

/// Sends a report. The supervisor requests one at a time, so the socket has room for it.
fn report(control: &ControlSocket, broker: &Broker) -> io::Result<()> {
    for member in broker.report() {
        let member = Box::new(MemberStatus::from(member));
        control.send(&Event::Member(member), None)?;
    }
    control.send(&Event::End, None)
}
