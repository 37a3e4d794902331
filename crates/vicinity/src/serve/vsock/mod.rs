//! The sockets plane: a process for each set of VMs that common groups connect, which is started again when it ends.
//!
//! The supervisor owns the sockets that QEMUs connect to, and keeps the connected ones with the settings of their
//! devices ([`stored_front_end`]). The next process continues with them, and resets the connections of the last one.

mod dial;
pub(super) mod directory;
mod guest;
mod stored_front_end;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;
use vsock::connection_list::ConnectionList;
use vsock::event::Event as DeviceEvent;
use vsock::figures::Figures;
use vsock::policy::AGENT_PORT;

use self::dial::dial;
use self::guest::Guest;
use self::stored_front_end::StoredFrontEnd;
use super::connections::{self, Connection};
use super::process::child_process::ChildProcess;
use super::process::deadline::{ANSWER_TIMEOUT, sleep_until};
use super::process::launch::{Launch, ProcessKind};
use super::process::lifecycle::NextAction;
use super::process::pending_request::PendingRequest;
use super::runtime_dir::{self, RuntimeDirError, SOCKET_MODE, SocketFile};
use crate::config::Vsock;
use crate::processes::vsock::protocol::{Event, Order};
use crate::runtime_paths::{vsock_device, vsock_host, vsock_host_port};
use crate::status::VsockStatus;

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 64;

/// Why the sockets plane cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VsockError {
    /// Its folder, or a socket.
    #[error(transparent)]
    Socket(#[from] RuntimeDirError),
    /// Its process, or its memory.
    #[error("cannot start its process: {0}")]
    Start(#[from] std::io::Error),
}

/// A message to the task of a set of VMs.
#[derive(Debug)]
pub(super) enum Message {
    /// A client asks for the state of the devices.
    Ask(oneshot::Sender<Vec<VsockStatus>>),
    /// A process connected to the socket of the VM with this number.
    Arrived(usize, Connection),
    /// The directory of each VM has changed.
    Directories(Directories),
    /// Stop the process, and end the task.
    Stop,
}

/// The directory of each VM, by its name.
pub(super) type Directories = Arc<BTreeMap<String, String>>;

/// A set of VMs, with its process.
#[derive(Debug)]
pub(super) struct VsockTask {
    guests: Vec<Guest>,
    /// The memory of the list of connections.
    list: OwnedFd,
    launch: Launch,
    process: ChildProcess<Order>,
    inbox: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    pending: PendingRequest<Vec<VsockStatus>>,
    /// The sockets on which host programs connect, in the order of the guests.
    host_sockets: Vec<UnixListener>,
    runtime_dir: PathBuf,
    directories: Directories,
    _files: Vec<SocketFile>,
    /// The tasks that accept connections; they end with this.
    _tasks: JoinSet<()>,
}

impl VsockTask {
    /// Creates the sockets in the folder of the sockets plane, and starts the process.
    pub(super) fn start(
        runtime_dir: &Path,
        set: Vec<Vsock>,
        directories: Directories,
        launch: Launch,
    ) -> Result<Self, VsockError> {
        let (sender, inbox) = mpsc::channel(INBOX);
        let (mut tasks, mut files) = (JoinSet::new(), Vec::new());
        let mut host_sockets = Vec::new();
        for (number, vsock) in set.iter().enumerate() {
            let path = vsock_device(runtime_dir, &vsock.vm);
            runtime_dir::remove_socket(&path);
            let (listener, file) = runtime_dir::listen(&path, SOCKET_MODE)?;
            let wrap = move |connection| Message::Arrived(number, connection);
            tasks.spawn(connections::accept(listener, sender.clone(), wrap));
            let path = vsock_host(runtime_dir, &vsock.vm);
            runtime_dir::remove_socket(&path);
            let (host_socket, host_file) = runtime_dir::listen(&path, SOCKET_MODE)?;
            host_sockets.push(host_socket);
            files.extend([file, host_file]);
        }
        let list = memfd_create(
            "vicinity-connections",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )
        .map_err(std::io::Error::from)?;
        ftruncate(&list, ConnectionList::bytes(set.len())).map_err(std::io::Error::from)?;
        let first = set.first().map_or("", |vsock| &vsock.vm).to_owned();
        let name = format!("the sockets plane of {first}");
        let guests = set.into_iter().map(|config| Guest {
            config,
            front_end: None,
            reason: None,
            figures: Figures::default(),
            before: Figures::default(),
            agent_asked: None,
        });
        let mut task = Self {
            process: ChildProcess::start(&name, ProcessKind::Vsock(&first), &launch)?,
            guests: guests.collect(),
            list,
            launch,
            inbox,
            sender,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
            host_sockets,
            runtime_dir: runtime_dir.to_owned(),
            directories,
            _files: files,
            _tasks: tasks,
        };
        task.set_up();
        Ok(task)
    }

    /// Returns the sender for messages to the task.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Sends the process its guests, the list of connections, and the front-ends that are connected.
    fn set_up(&mut self) {
        let orders = &mut self.process.plane.orders;
        for Guest { config, .. } in &self.guests {
            let order = Order::Guest {
                name: config.vm.clone(),
                cid: config.cid,
                rules: config.rules.clone(),
            };
            orders.push(order, None);
        }
        // A process that finds an order without its descriptor ends, and is started again.
        let list = self.list.as_fd().try_clone_to_owned();
        orders.push(Order::Begin, list.ok());
        for (guest, socket) in self.host_sockets.iter().enumerate() {
            let same = socket.as_fd().try_clone_to_owned();
            orders.push(Order::Listen { guest }, same.ok());
        }
        for (number, guest) in self.guests.iter_mut().enumerate() {
            let Some(front_end) = &guest.front_end else {
                continue;
            };
            let lost = match front_end.is_answering {
                true => Some("the process ended in the middle of a message of QEMU".to_owned()),
                false => front_end
                    .hand_over(number, orders)
                    .err()
                    .map(|error| error.to_string()),
            };
            if let Some(why) = lost {
                guest.lose(&format!("{why}; restart the VM to use its sockets again"));
            }
        }
    }

    /// Serves until the supervisor stops this task.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.process.lifecycle.deadline().into_iter();
            let deadline = deadline.chain(self.pending.deadline()).min();
            tokio::select! {
                event = self.process.plane.next_with_descriptor::<Event>() => match event {
                    Some((event, descriptor)) => self.event(event, descriptor),
                    None => {
                        self.process.ended().await;
                        self.guests.iter_mut().for_each(Guest::process_ended);
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
                    Some(Message::Arrived(guest, connection)) => self.arrived(guest, connection),
                    Some(Message::Directories(directories)) => self.directories = directories,
                    Some(Message::Stop) | None => break,
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        self.process
            .stop::<Event>(Order::Stop, ANSWER_TIMEOUT)
            .await;
    }

    /// Accepts a front-end, if it may connect and the VM has none.
    fn arrived(&mut self, number: usize, connection: Connection) {
        let is_up = self.process.lifecycle.is_up();
        let Some(guest) = self.guests.get_mut(number) else {
            return;
        };
        let vm = &guest.config.vm;
        if let Err(why) = connection.peer.check(&guest.config.owner) {
            tracing::warn!(%vm, "refused a process that may not connect to the socket device: {why}");
            return;
        }
        if guest
            .front_end
            .as_ref()
            .is_some_and(|old| !old.has_hung_up())
        {
            tracing::warn!(%vm, "refused a second QEMU for the socket device");
            return;
        }
        if !is_up {
            // QEMU would wait for a process that may not come.
            tracing::warn!(%vm, "refused a QEMU, because the process of its socket device does not run");
            return;
        }
        let front_end = StoredFrontEnd::new(connection.stream);
        match front_end.hand_over(number, &mut self.process.plane.orders) {
            Ok(()) => (guest.front_end, guest.reason) = (Some(front_end), None),
            Err(error) => {
                tracing::error!(%vm, %error, "cannot pass a connection to the sockets plane");
            }
        }
    }

    fn event(&mut self, event: Event, descriptor: Option<OwnedFd>) {
        match event {
            Event::Device(event) => self.device_event(event, descriptor),
            Event::Figures { guest, figures } => {
                if let Some(guest) = self.guests.get_mut(guest) {
                    guest.figures = figures;
                }
            }
            Event::End => self.answer(),
        }
    }

    fn device_event(&mut self, event: DeviceEvent, descriptor: Option<OwnedFd>) {
        match event {
            DeviceEvent::Keep {
                guest,
                key,
                payload,
            } => {
                let is_stored = self
                    .front_end(guest)
                    .map(|stored| stored.store(key, payload, descriptor));
                if is_stored == Some(false) {
                    tracing::error!(
                        "internal error, report it as a bug: a device has too many settings"
                    );
                    self.process.plane.kill();
                }
            }
            DeviceEvent::Forget { guest, key } => {
                self.change(guest, |stored| stored.forget(key));
            }
            DeviceEvent::ForgetAll { guest, request } => {
                self.change(guest, |stored| stored.forget_all(request));
            }
            DeviceEvent::Answering { guest } => {
                self.change(guest, |stored| stored.is_answering = true);
            }
            DeviceEvent::Answered { guest } => {
                self.change(guest, |stored| stored.is_answering = false);
            }
            DeviceEvent::Connect {
                guest,
                port,
                request,
            } => self.connect(guest, port, request),
            DeviceEvent::Ended {
                guest,
                reason,
                is_fault,
            } => {
                // The front-end that is connected now may be the next one already.
                let guest = self.guests.get_mut(guest);
                if let Some(guest) = guest.filter(|guest| guest.has_lost_front_end()) {
                    guest.front_end = None;
                    guest.reason = is_fault.then_some(reason);
                }
            }
        }
    }

    /// Changes what is stored of a guest's front-end, if it has one.
    fn change(&mut self, guest: usize, change: impl FnOnce(&mut StoredFrontEnd)) {
        if let Some(stored) = self.front_end(guest) {
            change(stored);
        }
    }

    /// Connects to a host program for the process, or serves the VM's directory.
    fn connect(&mut self, guest: usize, port: u32, request: u64) {
        let Some(guest) = self.guests.get_mut(guest) else {
            return;
        };
        let Guest { config, .. } = &*guest;
        let path = vsock_host_port(&self.runtime_dir, &config.vm, port);
        let socket = match (port, self.directories.get(&config.vm)) {
            (AGENT_PORT, Some(text)) => {
                guest.agent_asked = Some(Instant::now());
                directory::serve(text)
            }
            _ => dial(&path),
        };
        let socket = socket.inspect_err(|error| {
            tracing::debug!(path = %path.display(), %error, "no host program");
        });
        let order = Order::Connected { request };
        self.process.plane.orders.push(order, socket.ok());
    }

    fn front_end(&mut self, guest: usize) -> Option<&mut StoredFrontEnd> {
        self.guests.get_mut(guest)?.front_end.as_mut()
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
                let first = self.guests.first();
                let first = first.map_or("", |guest| &guest.config.vm);
                if self
                    .process
                    .restart(ProcessKind::Vsock(first), &self.launch)
                {
                    self.set_up();
                }
            }
        }
    }

    /// Requests a report from the process, unless a request is outstanding.
    fn request_report(&mut self) {
        if self.pending.begin(Instant::now()) {
            self.process.plane.orders.push(Order::Report, None);
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
        let restarts = self.process.lifecycle.restarts();
        let stale = self.pending.stale_reason();
        let process = self.process.failure_reason.clone().or(stale);
        let statuses = self.guests.iter().map(|guest| VsockStatus {
            vm: guest.config.vm.clone(),
            cid: guest.config.cid,
            groups: guest.config.rules.groups.clone(),
            up,
            restarts,
            reason: process.clone().or(guest.reason.clone()),
            agent: guest.has_agent(),
            figures: guest.figures.and_before(&guest.before),
        });
        self.pending.reply(statuses.collect());
    }
}
