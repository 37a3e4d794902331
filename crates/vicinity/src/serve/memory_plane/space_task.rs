//! The memory plane's spaces: for each a process, which is started again when it ends.
//!
//! The supervisor owns the sockets, so QEMU and the clients reach the next process at the same addresses. It
//! also owns the memory, so the next process serves the files that were published. QEMU does not reconnect its
//! device, so the supervisor unplugs the device and plugs in a new one ([`Replug`]).

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use memory_plane::Figures;
use memory_plane::push::Target;
use space::estimator::Window;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::dialing::Dialing;
use super::replug::Replug;
use super::size::new_memory;
use crate::config::Space;
use crate::processes::space::protocol::{Event, Order, Setting, Size};
use crate::runtime_paths::{space_monitor, space_socket};
use crate::serve::process::child_process::ChildProcess;
use crate::serve::process::deadline::sleep_until;
use crate::serve::process::launch::{Launch, ProcessKind};
use crate::serve::process::lifecycle::NextAction;
use crate::serve::process::pending_request::PendingRequest;
use crate::serve::runtime_dir::{self, RuntimeDirError, SOCKET_MODE, SocketFile};
use crate::serve::systemd::fd_store::Memory;
use crate::status::SpaceStatus;

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 64;

/// The process answers within so long, even on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a space cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceError {
    /// Its folder, or the socket for its VM.
    #[error(transparent)]
    Socket(#[from] RuntimeDirError),
    /// The socket for its clients.
    #[error("cannot listen on {at}: {source}; check `listen`")]
    Listen {
        /// The address.
        at: std::net::SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The cgroup of its process.
    #[error("cannot move its process to the cgroup {}: {source}; check `cgroup`", path.display())]
    Cgroup {
        /// The list of the cgroup's processes.
        path: std::path::PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The key cannot change while the space runs.
    #[error(
        "only `slots`, `objective` and `rate` can change while the space runs; to change other keys, remove the \
        space with all its files, and create it again"
    )]
    Fixed,
    /// The memory of the running space has places for fewer slots.
    #[error(
        "the space can have at most {most} slots while it runs; to have more, remove the space with all its \
        files, and create it again"
    )]
    TooLarge {
        /// The maximum number of slots.
        most: u32,
    },
    /// Its memory, or its process.
    #[error("cannot start its process: {0}")]
    Start(#[from] std::io::Error),
}

/// A message to a space's task.
#[derive(Debug)]
pub(in crate::serve) enum Message {
    /// A client asks for the state.
    Ask(oneshot::Sender<SpaceStatus>),
    /// The orchestrator requests a window of measurements. A process that does not run sends no answer.
    Window(oneshot::Sender<Window>),
    /// Sets the number of slots, and the maximum to which the number may grow. The answer is the number of slots
    /// that the space has.
    Resize(u32, u32, oneshot::Sender<u32>),
    /// The configured size or rate has changed.
    Configure(Box<Space>),
    /// Stop the process, and end the task.
    Stop,
}

/// A running space.
#[derive(Debug)]
pub(in crate::serve) struct SpaceTask {
    config: Space,
    vm_socket: UnixListener,
    _file: SocketFile,
    clients: Option<TcpListener>,
    /// The memory of the slots and of the ledger. Published files outlive the process.
    memory: (File, File),
    came_back: bool,
    launch: Launch,
    process: ChildProcess<Order>,
    inbox: mpsc::Receiver<Message>,
    sender: mpsc::Sender<Message>,
    pending: PendingRequest<SpaceStatus>,
    /// The last report of the process.
    figures: Figures,
    size: Size,
    /// The senders of requests for windows, and for sizes to be in force, in the order of their requests.
    windows: VecDeque<oneshot::Sender<Window>>,
    sized: VecDeque<oneshot::Sender<u32>>,
    /// The store to which the space pushes, and the connection attempt to it.
    store: Option<Target>,
    dialing: Dialing,
    replug: Replug,
}

impl SpaceTask {
    /// Creates the sockets in the folder of all spaces, and starts the process. The space continues with `memory`, if
    /// the service manager returned any.
    pub(in crate::serve) fn start(
        runtime_dir: &Path,
        config: Space,
        budget: Option<u32>,
        memory: Option<Memory>,
        launch: Launch,
    ) -> Result<Self, SpaceError> {
        let path = space_socket(runtime_dir, &config.vm);
        runtime_dir::remove_socket(&path);
        let (vm_socket, file) = runtime_dir::listen(&path, SOCKET_MODE)?;
        let replug = Replug::new(&config.vm, space_monitor(runtime_dir, &config.vm), path);
        let clients = config
            .listen
            .map(|at| TcpListener::bind(at).map_err(|source| SpaceError::Listen { at, source }));
        let clients = clients.transpose()?;
        let (sender, inbox) = mpsc::channel(INBOX);
        let name = format!("space of {}", config.vm);
        let size = Size::of(&config, budget, memory.as_ref().map(|memory| memory.most));
        let memory = memory.map_or_else(|| new_memory(&name, size.most), Ok)?;
        let mut space = Self {
            process: ChildProcess::start(&name, ProcessKind::Space(&config.vm), &launch)?,
            config,
            vm_socket,
            _file: file,
            clients,
            memory: (memory.slots, memory.ledger),
            came_back: memory.came_back,
            launch,
            inbox,
            sender,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
            figures: Figures::default(),
            size,
            windows: VecDeque::new(),
            sized: VecDeque::new(),
            store: None,
            dialing: Dialing::default(),
            replug,
        };
        let push = space.config.push.as_ref();
        space.store = push.and_then(|push| push.to.parse().ok());
        space.charge()?;
        space.set_up();
        // A QEMU that runs already was connected to the process of another supervisor.
        space.replug.start();
        Ok(space)
    }

    /// The memory of its slots and of its ledger, unless it came from the store.
    pub(in crate::serve) fn new_memory(&self) -> Option<[BorrowedFd<'_>; 2]> {
        let (slots, ledger) = &self.memory;
        (!self.came_back).then(|| [slots.as_fd(), ledger.as_fd()])
    }

    /// Returns the sender for messages to the space.
    pub(in crate::serve) fn address(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Returns the configuration of the space.
    pub(in crate::serve) fn config(&self) -> &Space {
        &self.config
    }

    /// Returns the maximum number of slots while the process runs.
    pub(in crate::serve) fn most(&self) -> u32 {
        self.size.most
    }

    /// Moves the process into the configured cgroup before it does any work, so that its work is charged there.
    fn charge(&self) -> Result<(), SpaceError> {
        let (Some(cgroup), Some(id)) = (&self.config.cgroup, self.process.plane.id()) else {
            return Ok(());
        };
        let path = cgroup.join("cgroup.procs");
        let list = OpenOptions::new().write(true).open(&path);
        let written = list.and_then(|mut list| list.write_all(id.to_string().as_bytes()));
        written.map_err(|source| SpaceError::Cgroup { path, source })
    }

    /// Sends the process its memory, its sockets and its limits.
    fn set_up(&mut self) {
        let setting = Setting {
            space: &self.config,
            size: self.size,
            memory: &self.memory,
            clients: self.clients.as_ref(),
            vm_socket: self.vm_socket.as_fd(),
        };
        for (order, fd) in setting.orders() {
            let fd = fd.try_clone_to_owned();
            // A process that finds an order without its descriptor ends, and is started again.
            let fd = fd.inspect_err(|error| {
                tracing::error!(%error, "space of {}: cannot pass a descriptor to its process", self.config.vm);
            });
            self.process.plane.orders.push(order, fd.ok());
        }
    }

    /// Serves until the supervisor stops this task.
    pub(in crate::serve) async fn run(mut self) {
        loop {
            let deadline = self.process.lifecycle.deadline().into_iter();
            let deadline = deadline.chain(self.pending.deadline()).min();
            tokio::select! {
                event = self.process.plane.next_event::<Event>() => match event {
                    Some(Event::Report(figures)) => {
                        self.figures = figures;
                        self.answer();
                    }
                    // The client may be gone.
                    Some(Event::Window(window)) => {
                        let _gone = self.windows.pop_front().map(|asker| asker.send(window));
                    }
                    Some(Event::Sized(slots)) => {
                        self.size.slots = slots;
                        let _gone = self.sized.pop_front().map(|asker| asker.send(slots));
                    }
                    Some(Event::Connect) => {
                        if let Some(store) = &self.store {
                            self.dialing.start(store);
                        }
                    }
                    None => {
                        self.process.ended().await;
                        self.dialing.cancel();
                        self.figures = Figures::default();
                        self.windows.clear();
                        self.sized.clear();
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
                    Some(Message::Window(asker)) => {
                        if self.process.lifecycle.is_up() {
                            self.windows.push_back(asker);
                            self.process.plane.orders.push(Order::Window, None);
                        }
                    }
                    Some(Message::Resize(slots, limit, done)) => self.resize(slots, limit, done),
                    Some(Message::Configure(config)) => {
                        self.config = *config;
                        // The next process starts with the new rate.
                        if self.process.lifecycle.is_up() {
                            let order = Order::Rate(self.config.rate);
                            self.process.plane.orders.push(order, None);
                        }
                        if let Some(slots) = self.config.slots {
                            let (done, _) = oneshot::channel();
                            self.resize(slots, slots, done);
                        }
                    }
                    Some(Message::Stop) | None => break,
                },
                done = self.dialing.done() => {
                    let orders = &mut self.process.plane.orders;
                    match done {
                        Ok(stream) => orders.push(Order::Connected, Some(stream)),
                        Err(why) => orders.push(Order::Unreachable(why), None),
                    }
                }
                () = sleep_until(deadline) => self.tick(),
            }
        }
        self.process
            .stop::<Event>(Order::Stop, ANSWER_TIMEOUT)
            .await;
    }

    /// Sets the size: now, or at the next start of the process.
    fn resize(&mut self, slots: u32, limit: u32, done: oneshot::Sender<u32>) {
        let most = self.size.most;
        self.size = Size {
            slots: slots.min(most),
            limit: limit.min(most),
            most,
        };
        match self.process.lifecycle.is_up() {
            true => {
                self.sized.push_back(done);
                let order = Order::Resize(self.size);
                self.process.plane.orders.push(order, None);
            }
            // Nothing is in use.
            false => {
                let _gone = done.send(self.size.slots);
            }
        }
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
                let kind = ProcessKind::Space(&self.config.vm);
                if self.process.restart(kind, &self.launch) {
                    if let Err(error) = self.charge() {
                        tracing::error!("space of {}: {error}", self.config.vm);
                    }
                    self.set_up();
                    self.replug.start();
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
        let listen = self.clients.as_ref();
        let listen = listen.and_then(|clients| clients.local_addr().ok());
        self.pending.reply(SpaceStatus {
            vm: self.config.vm.clone(),
            up: self.process.lifecycle.is_up(),
            restarts: self.process.lifecycle.restarts(),
            reason: self
                .process
                .failure_reason
                .clone()
                .or(self.replug.failure_reason())
                .or(self.pending.stale_reason()),
            listen,
            tls: self.config.tls.is_some(),
            rate: self.config.rate,
            push: self.store.as_ref().map(Target::to_string),
            figures: self.figures.clone(),
        });
    }
}
