//! The trust groups of the direct channel: each has a process, which the supervisor starts again when it ends.
//!
//! The supervisor owns the window, the doorbells and the sockets. So the VMs continue to exchange packets while
//! there is no process, and the next one takes the group over as it is.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use direct::{DirectError, GroupResources};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::process::child_process::ChildProcess;
use super::process::launch::{Launch, ProcessKind};
use super::process::lifecycle::NextAction;
use super::process::pending_request::PendingRequest;
use super::runtime_dir::RuntimeDirError;
use crate::config::TrustGroup;
use crate::processes::direct_group::{Event, Order};
use crate::serve::process::deadline::sleep_until;
use crate::status::{GroupMemberStatus, GroupStatus};

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 64;

/// Time in which the process answers: it may wait 20 s for each answer of a QEMU.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Time in which guests release the devices that the process unplugs when it stops.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// Why a group cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GroupError {
    /// Its folder.
    #[error(transparent)]
    Folder(#[from] RuntimeDirError),
    /// Its window, doorbells or sockets.
    #[error(transparent)]
    Resources(#[from] DirectError),
    /// Its process.
    #[error("cannot start its process: {0}")]
    Start(#[from] std::io::Error),
}

/// A message to a group's task.
#[derive(Debug)]
pub(super) enum Message {
    /// A client asks for the state.
    Ask(oneshot::Sender<GroupStatus>),
    /// A VM must leave, or may join again; the answer is whether the VM is a member.
    SetLeft {
        vm: String,
        left: bool,
        known: oneshot::Sender<bool>,
    },
    /// Stop the process, and end the task.
    Stop,
}

/// A running group.
#[derive(Debug)]
pub(super) struct Group {
    config: TrustGroup,
    runtime_dir: PathBuf,
    parts: GroupResources,
    launch: Launch,
    process: ChildProcess<Order>,
    /// VMs that must stay out of the group, kept for the next process.
    left: BTreeSet<String>,
    inbox: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    pending: PendingRequest<GroupStatus>,
    /// The part of the outstanding report that arrived so far; `members` is the last complete one.
    incoming: Vec<GroupMemberStatus>,
    members: Vec<GroupMemberStatus>,
}

impl Group {
    /// Makes the group's resources in the folder of all groups, and starts its process.
    pub(super) fn start(
        runtime_dir: &Path,
        config: TrustGroup,
        launch: Launch,
    ) -> Result<Self, GroupError> {
        let parts = GroupResources::create(&config.members)?;
        let (sender, inbox) = mpsc::channel(INBOX);
        let kind = ProcessKind::Group(runtime_dir, &config.name);
        let name = format!("group {}", config.name);
        let mut group = Self {
            process: ChildProcess::start(&name, kind, &launch)?,
            config,
            runtime_dir: runtime_dir.to_owned(),
            parts,
            launch,
            left: BTreeSet::new(),
            inbox,
            sender,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
            incoming: Vec::new(),
            members: Vec::new(),
        };
        group.set_up();
        Ok(group)
    }

    /// Returns the sender for messages to the group.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Sends the process its members, the window and the VMs that must stay out.
    fn set_up(&mut self) {
        let mut give = |order, fd: BorrowedFd<'_>| match fd.try_clone_to_owned() {
            Ok(fd) => self.process.plane.orders.push(order, Some(fd)),
            // The process ends when it receives the order without its descriptor, and is started again.
            Err(error) => {
                tracing::error!(%error, "cannot pass a descriptor to the process of group {}", 
                self.config.name);
                self.process.plane.orders.push(order, None);
            }
        };
        for resources in self.parts.member_resources() {
            give(
                Order::Member(resources.name().to_owned()),
                resources.doorbell(),
            );
        }
        let group = self.config.clone();
        give(Order::Begin { group }, self.parts.window());
        for vm in self.left.clone() {
            let left = true;
            self.process
                .plane
                .orders
                .push(Order::SetLeft { vm, left }, None);
        }
    }

    /// Serves until the supervisor stops this task.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.process.lifecycle.deadline().into_iter();
            let deadline = deadline.chain(self.pending.deadline()).min();
            tokio::select! {
                event = self.process.plane.next_event::<Event>() => match event {
                    Some(event) => self.event(event),
                    None => {
                        self.process.ended().await;
                        self.answer();
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Ask(asker)) => {
                        self.pending.add_waiter(asker, Instant::now());
                        match self.process.lifecycle.is_up() {
                            true => self.request_report(),
                            false => self.answer(),
                        }
                    }
                    Some(Message::SetLeft { vm, left, known }) => {
                        // The client may be gone.
                        let _gone = known.send(self.set_left(vm, left));
                    }
                    Some(Message::Stop) | None => break,
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        self.process.stop::<Event>(Order::Stop, STOP_LIMIT).await;
    }

    fn set_left(&mut self, vm: String, left: bool) -> bool {
        if !self.config.members.contains(&vm) {
            return false;
        }
        match left {
            true => self.left.insert(vm.clone()),
            false => self.left.remove(&vm),
        };
        self.process
            .plane
            .orders
            .push(Order::SetLeft { vm, left }, None);
        true
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.pending.is_late(now) {
            self.send_status();
        }
        match self.process.due(&mut self.pending, now) {
            NextAction::Nothing => {}
            NextAction::HealthCheck => self.request_report(),
            NextAction::Start => {
                let kind = ProcessKind::Group(&self.runtime_dir, &self.config.name);
                if self.process.restart(kind, &self.launch) {
                    self.set_up();
                }
            }
        }
    }

    /// Requests a report from the process, unless a request is outstanding.
    fn request_report(&mut self) {
        if self.pending.begin(Instant::now()) {
            self.incoming.clear();
            self.process.plane.orders.push(Order::Report, None);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Member(member) if self.incoming.len() < self.config.members.len() => {
                if member.state == "absent" {
                    self.left.remove(&member.vm);
                }
                self.incoming.push(member);
            }
            Event::Member(_) => tracing::error!(
                "internal error, report it as a bug: a group reported unknown \
                members"
            ),
            Event::End => {
                self.members = std::mem::take(&mut self.incoming);
                self.answer();
            }
        }
    }

    /// Ends the request, because the process has answered or is gone, and answers the clients.
    fn answer(&mut self) {
        self.pending.finish();
        self.send_status();
    }

    /// Sends the known state to the clients that wait.
    fn send_status(&mut self) {
        let up = self.process.lifecycle.is_up();
        let status = GroupStatus {
            name: self.config.name.clone(),
            up,
            restarts: self.process.lifecycle.restarts(),
            reason: self
                .process
                .failure_reason
                .clone()
                .or_else(|| self.pending.stale_reason()),
            members: match up {
                true => self.members.clone(),
                false => Vec::new(),
            },
        };
        self.pending.reply(status);
    }
}
