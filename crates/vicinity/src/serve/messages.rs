//! The message plane: its data plane and the gateway of this host's own programs, each a process
//! that is started again when it ends.
//!
//! The sockets that VMs connect to are the supervisor's, so a VM that is started finds the data
//! plane of the time. With a data plane, the memory ends that it shared: VMs that run on have
//! theirs, which nobody serves any more.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use message::far::Member;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::home::{self, Folder, HomeError, SOCKET_MODE, SocketFile};
use super::launch::{Duty, Launch};
use super::life::{Due, Life};
use super::network::{PATIENCE, sleep_until};
use super::plane::Plane;
use crate::message_plane::{Event, Order};
use crate::plane::{FOLDER, HOST, socket};
use crate::status::{MemberStatus, MessageStatus};

/// Waiting messages: more senders than that wait themselves.
const INBOX: usize = 64;

/// What others tell the message plane.
#[derive(Debug)]
pub(super) enum Message {
    /// Somebody wants to know the state.
    Ask(oneshot::Sender<MessageStatus>),
    /// Stop the processes and end.
    Stop,
}

/// A member, and where its VM connects.
#[derive(Debug)]
struct Door {
    member: Member,
    listener: OwnedFd,
    _file: SocketFile,
}

/// What the message plane needs from the system.
#[derive(Debug)]
pub(super) struct Doors {
    doors: Vec<Door>,
    runtime_dir: PathBuf,
    /// Last, so that it is empty when it is dropped.
    _folder: Folder,
}

impl Doors {
    pub(super) fn take(runtime_dir: &Path, members: Vec<Member>) -> Result<Self, HomeError> {
        let folder = Folder::make(&runtime_dir.join(FOLDER))?;
        let door = |member: Member| {
            let path = socket(runtime_dir, &member.name);
            let (listener, file) = home::listen(&path, SOCKET_MODE)?;
            let listener = listener.into_std().map(OwnedFd::from);
            let listener = listener.map_err(|source| HomeError::Socket { path, source })?;
            Ok(Door {
                member,
                listener,
                _file: file,
            })
        };
        Ok(Self {
            doors: members.into_iter().map(door).collect::<Result<_, _>>()?,
            runtime_dir: runtime_dir.to_owned(),
            _folder: folder,
        })
    }
}

/// The message plane at work.
#[derive(Debug)]
pub(super) struct Messages {
    doors: Doors,
    launch: Launch,
    plane: Kept,
    /// Of this host's programs, if it is a member.
    gateway: Option<Kept>,
    inbox: mpsc::Receiver<Message>,
    outlet: mpsc::Sender<Message>,
    asked: Vec<oneshot::Sender<MessageStatus>>,
    answer_by: Option<Instant>,
    /// What it said so far of what it was asked, and the last time in full.
    hearing: Vec<MemberStatus>,
    members: Vec<MemberStatus>,
}

/// A process that is kept running.
#[derive(Debug)]
struct Kept {
    name: &'static str,
    plane: Plane<Order>,
    life: Life,
    trouble: Option<String>,
}

impl Kept {
    fn start(name: &'static str, duty: Duty<'_>, launch: &Launch) -> std::io::Result<Self> {
        Ok(Self {
            name,
            plane: Plane::start(duty, launch)?,
            life: Life::new(Instant::now()),
            trouble: None,
        })
    }

    async fn ended(&mut self) {
        let verdict = self.plane.verdict().await;
        self.down(&verdict);
    }

    fn down(&mut self, verdict: &str) {
        let trouble = self.life.ended(verdict, Instant::now());
        tracing::error!("{}: {trouble}", self.name);
        self.trouble = Some(trouble);
    }

    /// Whether it runs again.
    fn start_again(&mut self, duty: Duty<'_>, launch: &Launch) -> bool {
        match Plane::start(duty, launch) {
            Ok(plane) => self.plane = plane,
            Err(error) => {
                self.down(&format!("it cannot be started: {error}"));
                return false;
            }
        }
        self.life.started(Instant::now());
        self.trouble = None;
        tracing::info!("{}: started again", self.name);
        true
    }

    async fn stop(&mut self) {
        if !self.life.is_up() {
            return;
        }
        if !self.plane.stop::<Event>(Order::Stop).await {
            tracing::error!("our bug: {} does not stop", self.name);
        }
    }
}

impl Messages {
    /// Start the processes.
    pub(super) fn start(doors: Doors, launch: Launch) -> std::io::Result<Self> {
        let (outlet, inbox) = mpsc::channel(INBOX);
        let is_host = |door: &Door| door.member.name == HOST;
        let gateway = doors.doors.iter().any(is_host).then(|| {
            let duty = Duty::Gateway(&doors.runtime_dir);
            Kept::start("the message plane's gateway for this host", duty, &launch)
        });
        let mut messages = Self {
            plane: Kept::start("the message plane", Duty::Messages, &launch)?,
            gateway: gateway.transpose()?,
            doors,
            launch,
            inbox,
            outlet,
            asked: Vec::new(),
            answer_by: None,
            hearing: Vec::new(),
            members: Vec::new(),
        };
        messages.set_up();
        Ok(messages)
    }

    /// Where to send the message plane its messages.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.outlet.clone()
    }

    /// Tell the data plane who its members are.
    fn set_up(&mut self) {
        let orders = &mut self.plane.plane.orders;
        for Door {
            member, listener, ..
        } in &self.doors.doors
        {
            let order = Order::Member {
                name: member.name.clone(),
                group: member.group.clone(),
            };
            match listener.as_fd().try_clone_to_owned() {
                Ok(listener) => orders.give(order, Some(listener)),
                Err(error) => tracing::error!(%error, "member {} is left out", member.name),
            }
        }
        orders.give(Order::Begin, None);
    }

    /// Serve until told to stop.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            let gateway = async {
                match &mut self.gateway {
                    Some(gateway) => gateway.plane.next_event::<Event>().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.plane.plane.next_event::<Event>() => match event {
                    Some(event) => self.event(event),
                    None => {
                        self.plane.ended().await;
                        self.answer();
                    }
                },
                said = gateway => if let (None, Some(gateway)) = (said, &mut self.gateway) {
                    gateway.ended().await;
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Ask(asker)) => {
                        self.asked.push(asker);
                        match self.plane.life.is_up() {
                            true => self.ask(),
                            false => self.answer(),
                        }
                    }
                    Some(Message::Stop) | None => break,
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        if let Some(gateway) = &mut self.gateway {
            gateway.stop().await;
        }
        self.plane.stop().await;
    }

    fn deadline(&self) -> Option<Instant> {
        let gateway = self.gateway.as_ref();
        let lives = self.plane.life.deadline().into_iter();
        let lives = lives.chain(gateway.and_then(|gateway| gateway.life.deadline()));
        lives.chain(self.answer_by).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.answer_by.is_some_and(|by| by <= now) {
            self.answer_by = None;
            self.plane.life.silenced();
            self.plane.plane.kill();
        }
        match self.plane.life.due(now) {
            Due::Nothing => {}
            Due::Look => self.ask(),
            Due::Start => {
                if self.plane.start_again(Duty::Messages, &self.launch) {
                    self.set_up();
                }
            }
        }
        if let Some(gateway) = &mut self.gateway {
            if gateway.life.due(now) == Due::Start {
                gateway.start_again(Duty::Gateway(&self.doors.runtime_dir), &self.launch);
            }
        }
    }

    /// Ask the data plane how it is, unless it has been asked already.
    fn ask(&mut self) {
        if self.answer_by.is_none() {
            self.answer_by = Some(Instant::now() + PATIENCE);
            self.hearing.clear();
            self.plane.plane.orders.give(Order::Report, None);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Member(member) if self.hearing.len() < self.doors.doors.len() => {
                self.hearing.push(*member);
            }
            Event::Member(_) => tracing::error!("our bug: the message plane has unknown members"),
            Event::End => {
                self.members = std::mem::take(&mut self.hearing);
                self.answer();
            }
        }
    }

    fn answer(&mut self) {
        self.answer_by = None;
        let up = self.plane.life.is_up();
        let gateway = self.gateway.as_ref();
        let status = MessageStatus {
            up,
            restarts: self.plane.life.restarts(),
            reason: self.plane.trouble.clone(),
            gateway_restarts: gateway.map(|gateway| gateway.life.restarts()),
            gateway_reason: gateway.and_then(|gateway| gateway.trouble.clone()),
            members: match up {
                true => self.members.clone(),
                false => Vec::new(),
            },
        };
        for asker in self.asked.drain(..) {
            // An asker that is gone needs no answer.
            drop(asker.send(status.clone()));
        }
    }
}
