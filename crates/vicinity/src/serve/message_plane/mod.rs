//! The message plane: its data plane, the gateway of this host's own programs and the uplink, each a
//! process that is started again when it ends.
//!
//! The supervisor owns the sockets that VMs connect to, the memory that they share, the doorbells, and the
//! connections of running VMs. So a VM that starts reaches the present data plane, and a data plane that starts
//! gets the running VMs. The VMs' links end with a data plane.

mod admission;
mod auxiliary;
mod program_sockets;
mod resources;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use message::remote::MemberResources;
use message::remote::uplink::NamedNic;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::admission::Admission;
use self::auxiliary::{AuxiliaryProcess, next_event};
pub(super) use self::resources::{PlaneResources, ResourcesError};
use super::connections::Connection;
use super::process::child_process::ChildProcess;
use super::process::handle::Orders;
use super::process::launch::{Launch, ProcessKind};
use super::process::lifecycle::NextAction;
use super::process::pending_request::PendingRequest;
use crate::message_uplink::HOST;
use crate::processes::message::protocol::{Accepted, Event, Order};
use crate::serve::process::deadline::{ANSWER_TIMEOUT, sleep_until};
use crate::status::{MemberStatus, MessageStatus, UplinkStatus};

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 64;

/// A message to the message plane's task.
#[derive(Debug)]
pub(super) enum Message {
    /// A client asks for the state.
    Ask(oneshot::Sender<MessageStatus>),
    /// A process connected as the member with this number.
    Arrived(usize, Connection),
    /// Stop the processes, and end the task.
    Stop,
}

/// The running message plane.
#[derive(Debug)]
pub(super) struct Messages {
    resources: PlaneResources,
    admission: Admission,
    launch: Launch,
    plane: ChildProcess<Order>,
    /// The gateway of this host's programs, if the host is a member.
    gateway: Option<AuxiliaryProcess>,
    uplink: Option<AuxiliaryProcess>,
    /// The uplink's last report.
    uplink_status: UplinkStatus,
    inbox: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    pending: PendingRequest<MessageStatus>,
    /// The part of the outstanding report that arrived so far; `members` is the last complete one.
    incoming: Vec<MemberStatus>,
    members: Vec<MemberStatus>,
    /// The task that gives programs sockets; it ends with this.
    _program_sockets: JoinSet<()>,
}

impl Messages {
    /// Starts the processes.
    pub(super) fn start(mut resources: PlaneResources, launch: Launch) -> std::io::Result<Self> {
        let (sender, inbox) = mpsc::channel(INBOX);
        let listeners = std::mem::take(&mut resources.listeners);
        let members = resources
            .parts
            .member_resources()
            .iter()
            .map(MemberResources::member);
        let admission = Admission::start(members, listeners, &sender, Message::Arrived);
        let is_host = |member_resources: &MemberResources| member_resources.member().name == HOST;
        let mut program_sockets = JoinSet::new();
        if let Some((listener, offer)) = resources.program_sockets.take() {
            program_sockets.spawn(program_sockets::serve(listener, offer));
        }
        let gateway = resources
            .parts
            .member_resources()
            .iter()
            .any(is_host)
            .then(|| {
                let kind = ProcessKind::Gateway(&resources.runtime_dir);
                AuxiliaryProcess::start("the message plane's gateway for this host", kind, &launch)
            });
        let uplink = resources.uplink.as_ref().map(|_| {
            let kind = ProcessKind::Uplink(&resources.runtime_dir);
            AuxiliaryProcess::start("the message plane's uplink", kind, &launch)
        });
        let mut messages = Self {
            plane: ChildProcess::start("the message plane", ProcessKind::Messages, &launch)?,
            gateway: gateway.transpose()?,
            uplink: uplink.transpose()?,
            uplink_status: UplinkStatus::default(),
            resources,
            admission,
            launch,
            inbox,
            sender,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
            incoming: Vec::new(),
            members: Vec::new(),
            _program_sockets: program_sockets,
        };
        messages.set_up();
        messages.set_up_uplink();
        Ok(messages)
    }

    /// Returns the sender for messages to the message plane.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Sends the data plane its members.
    fn set_up(&mut self) {
        let orders = &mut self.plane.plane.orders;
        let give = |orders: &mut Orders<Order>, order, fd: BorrowedFd<'_>| {
            match fd.try_clone_to_owned() {
                Ok(fd) => orders.push(order, Some(fd)),
                // The process ends when it receives the order without its descriptor, and is started again.
                Err(error) => {
                    tracing::error!(%error, "cannot pass a descriptor to the message plane");
                    orders.push(order, None);
                }
            }
        };
        for (number, member_resources) in self.resources.parts.member_resources().iter().enumerate()
        {
            let member = member_resources.member();
            let order = Order::Member {
                name: member.name.clone(),
                group: member.group.clone(),
                nic: member.nic,
                uplink: member.uplink,
            };
            orders.push(order, None);
            // With the eventfds of its connection, because QEMU accepts no others later.
            if let Some(Accepted {
                socket: Some(socket),
                interrupt: Some(interrupt),
                doorbell: Some(doorbell),
            }) = self.resources.guests.get(&number)
            {
                give(orders, Order::Interrupt, interrupt.as_fd());
                give(orders, Order::Doorbell, doorbell.as_fd());
                give(orders, Order::Connection, socket.as_fd());
            }
        }
        for region in self.resources.parts.regions() {
            give(orders, Order::Region, region);
        }
        orders.push(Order::Begin, None);
        self.admission.resend(orders);
    }

    /// Gives the uplink its interface.
    fn set_up_uplink(&mut self) {
        let (Some(plan), Some(uplink)) = (&self.resources.uplink, &mut self.uplink) else {
            return;
        };
        match plan.open() {
            Ok(port) => {
                for NamedNic { nic, name } in plan.named_nics.clone() {
                    uplink.push(Order::NamedNic { nic, name }, None);
                }
                let order = Order::Uplink {
                    peer_timeout: plan.peer_timeout,
                    shared: plan.shared().cloned(),
                };
                uplink.push(order, Some(port.into()));
            }
            Err(error) => {
                tracing::error!(%error, "cannot use the uplink's interface");
                uplink.push(Order::Stop, None);
            }
        }
    }

    /// Serves until the supervisor stops this task.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                event = self.plane.plane.next_with_descriptor::<Event>() => match event {
                    Some((event, fd)) => self.event(event, fd),
                    None => {
                        self.plane.ended().await;
                        self.answer();
                    }
                },
                event = next_event(&mut self.gateway) => match (event, &mut self.gateway) {
                    (None, Some(gateway)) => gateway.ended().await,
                    _ => tracing::error!("internal error, report it as a bug: the gateway sent an event of another \
                        process"),
                },
                event = next_event(&mut self.uplink) => match (event, &mut self.uplink) {
                    (Some(Event::Uplink(status)), _) => self.uplink_status = status,
                    (Some(_), _) | (None, None) => {
                        tracing::error!("internal error, report it as a bug: the uplink sent an event of another \
                            process");
                    }
                    (None, Some(uplink)) => {
                        uplink.ended().await;
                        self.uplink_status = UplinkStatus::default();
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Ask(asker)) => {
                        self.pending.add_waiter(asker, Instant::now());
                        match self.plane.lifecycle.is_up() {
                            true => self.request_report(),
                            false => self.answer(),
                        }
                    }
                    Some(Message::Arrived(number, connection)) => {
                        let up = self.plane.lifecycle.is_up();
                        let orders = &mut self.plane.plane.orders;
                        self.admission.arrived(number, connection, up, orders);
                    }
                    Some(Message::Stop) | None => break,
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        for auxiliary in [&mut self.uplink, &mut self.gateway].into_iter().flatten() {
            auxiliary.stop().await;
        }
        self.plane.stop::<Event>(Order::Stop, ANSWER_TIMEOUT).await;
    }

    fn deadline(&self) -> Option<Instant> {
        let others = self.gateway.iter().chain(&self.uplink);
        let others = others.filter_map(AuxiliaryProcess::deadline);
        let plane = self.plane.lifecycle.deadline();
        others.chain(plane).chain(self.pending.deadline()).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.pending.is_late(now) {
            self.send_status();
        }
        match self.plane.due(&mut self.pending, now) {
            NextAction::Nothing => {}
            NextAction::HealthCheck => self.request_report(),
            NextAction::Start => {
                if self.plane.restart(ProcessKind::Messages, &self.launch) {
                    let guests = &self.resources.guests;
                    let renewed = self
                        .resources
                        .parts
                        .renew(|member| guests.contains_key(&member));
                    if let Err(error) = renewed {
                        tracing::error!(%error, "cannot create new memory; the message plane continues with the \
                        old memory");
                    }
                    self.set_up();
                }
            }
        }
        if let Some(gateway) = &mut self.gateway {
            gateway.tick(
                now,
                ProcessKind::Gateway(&self.resources.runtime_dir),
                &self.launch,
            );
        }
        if let Some(uplink) = &mut self.uplink {
            if uplink.tick(
                now,
                ProcessKind::Uplink(&self.resources.runtime_dir),
                &self.launch,
            ) {
                self.set_up_uplink();
            }
        }
    }

    /// Keeps one descriptor of a VM that the data plane accepted.
    fn accepted(&mut self, number: usize, keep: impl FnOnce(&mut Accepted)) {
        let member_resources = self.resources.parts.member_resources().get(number);
        // Processes of the host connect again by themselves.
        let vm = member_resources.map(MemberResources::member);
        if vm.is_some_and(|member| member.name != HOST && !member.uplink) {
            keep(self.resources.guests.entry(number).or_default());
        }
    }

    /// Requests a report from the data plane, unless a request is outstanding.
    fn request_report(&mut self) {
        if self.pending.begin(Instant::now()) {
            self.incoming.clear();
            self.plane.plane.orders.push(Order::Report, None);
        }
    }

    fn event(&mut self, event: Event, fd: Option<OwnedFd>) {
        match event {
            Event::Member(member)
                if self.incoming.len() < self.resources.parts.member_resources().len() =>
            {
                self.incoming.push(*member);
            }
            Event::Member(_) => tracing::error!(
                "internal error, report it as a bug: the message plane reported \
                unknown members"
            ),
            Event::End => {
                self.members = std::mem::take(&mut self.incoming);
                self.answer();
            }
            Event::Admitting(number) => {
                self.admission.begun(number, &mut self.plane.plane.orders);
            }
            Event::Interrupt(number) => {
                // This begins the next connection; nothing of the last one is kept.
                let last = self.resources.guests.remove(&number);
                if let Some(socket) = last.and_then(|last| last.socket) {
                    vhost::reclaim::close(socket);
                }
                self.accepted(number, |accepted| accepted.interrupt = fd);
            }
            Event::Doorbell(number) => self.accepted(number, |accepted| accepted.doorbell = fd),
            Event::Accepted(number) => self.accepted(number, |accepted| accepted.socket = fd),
            Event::Uplink(_) => tracing::error!(
                "internal error, report it as a bug: the message plane sent an \
                event of the uplink"
            ),
        }
    }

    /// Ends the request, because the data plane has answered or is gone, and answers the clients.
    fn answer(&mut self) {
        self.pending.finish();
        self.send_status();
    }

    /// Sends the known state to the clients that wait.
    fn send_status(&mut self) {
        let up = self.plane.lifecycle.is_up();
        let (gateway, uplink) = (self.gateway.as_ref(), self.uplink.as_ref());
        let status = MessageStatus {
            up,
            restarts: self.plane.lifecycle.restarts(),
            reason: self
                .plane
                .failure_reason
                .clone()
                .or_else(|| self.pending.stale_reason()),
            gateway_restarts: gateway.map(AuxiliaryProcess::restarts),
            gateway_reason: gateway.and_then(AuxiliaryProcess::failure_reason),
            uplink_restarts: uplink.map(AuxiliaryProcess::restarts),
            uplink_reason: uplink.and_then(AuxiliaryProcess::failure_reason),
            uplink: uplink.map(|_| self.uplink_status),
            members: match up {
                true => self.members.clone(),
                false => Vec::new(),
            },
        };
        self.pending.reply(status);
    }
}
