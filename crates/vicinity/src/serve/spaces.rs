//! The memory plane's spaces: for each a process, which is started again when it ends.
//!
//! The sockets are the supervisor's, so QEMU and clients find the next process where the last one
//! was.

use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::home::{self, HomeError, SocketFile};
use super::kept::Kept;
use super::launch::{Duty, Launch};
use super::life::Due;
use super::network::sleep_until;
use super::question::Question;
use crate::config::Space;
use crate::space_process::{Event, Figures, Order};
use crate::spaces::socket;
use crate::status::SpaceStatus;

/// Waiting messages: more senders than that wait themselves.
const INBOX: usize = 64;

/// The process answers within so long, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// Permissions of a space's socket: the owner alone.
const MODE: u32 = 0o600;

/// Why a space cannot be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpaceError {
    /// Its folder, or the socket for its VM.
    #[error(transparent)]
    Socket(#[from] HomeError),
    /// The socket for its clients.
    #[error("cannot listen on {at}: {source}")]
    Listen {
        /// The address.
        at: std::net::SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its process.
    #[error("its process cannot be started: {0}")]
    Start(#[from] std::io::Error),
}

/// What others tell a space.
#[derive(Debug)]
pub(super) enum Message {
    /// Somebody wants to know the state.
    Ask(oneshot::Sender<SpaceStatus>),
    /// Stop the process and end.
    Stop,
}

/// A space at work.
#[derive(Debug)]
pub(super) struct SpaceTask {
    config: Space,
    door: UnixListener,
    _file: SocketFile,
    clients: Option<TcpListener>,
    launch: Launch,
    process: Kept<Order>,
    inbox: mpsc::Receiver<Message>,
    outlet: mpsc::Sender<Message>,
    asked: Question<SpaceStatus>,
    /// What it said last.
    figures: Figures,
}

impl SpaceTask {
    /// Take what it needs, in the folder that all spaces have, and start its process.
    pub(super) fn start(
        runtime_dir: &Path,
        config: Space,
        launch: Launch,
    ) -> Result<Self, SpaceError> {
        let (door, file) = home::listen(&socket(runtime_dir, &config.vm), MODE)?;
        let clients = config
            .listen
            .map(|at| TcpListener::bind(at).map_err(|source| SpaceError::Listen { at, source }));
        let clients = clients.transpose()?;
        let (outlet, inbox) = mpsc::channel(INBOX);
        let name = format!("space of {}", config.vm);
        let mut space = Self {
            process: Kept::start(&name, Duty::Space(&config.vm), &launch)?,
            config,
            door,
            _file: file,
            clients,
            launch,
            inbox,
            outlet,
            asked: Question::new(PATIENCE),
            figures: Figures::default(),
        };
        space.set_up();
        Ok(space)
    }

    /// Where to send the space its messages.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.outlet.clone()
    }

    /// Tell the process what it has.
    fn set_up(&mut self) {
        let orders = &mut self.process.plane.orders;
        let mut give = |order, fd: BorrowedFd<'_>| match fd.try_clone_to_owned() {
            Ok(fd) => orders.give(order, Some(fd)),
            // The process will find the order without a descriptor, end, and be started again.
            Err(error) => {
                tracing::error!(%error, "space of {}", self.config.vm);
                orders.give(order, None);
            }
        };
        if let Some(clients) = &self.clients {
            give(Order::Clients, clients.as_fd());
        }
        give(Order::Begin(self.config.clone()), self.door.as_fd());
    }

    /// Serve until told to stop.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.process.life.deadline().into_iter();
            let deadline = deadline.chain(self.asked.deadline()).min();
            tokio::select! {
                event = self.process.plane.next_event::<Event>() => match event {
                    Some(Event::Report(figures)) => {
                        self.figures = figures;
                        self.answer();
                    }
                    None => {
                        self.process.ended().await;
                        self.figures = Figures::default();
                        self.answer();
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Ask(asker)) => {
                        self.asked.wait(asker);
                        match self.process.life.is_up() {
                            true => self.ask(),
                            false => self.answer(),
                        }
                    }
                    Some(Message::Stop) | None => break,
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        self.process.stop::<Event>(Order::Stop, PATIENCE).await;
    }

    fn tick(&mut self) {
        match self.process.due(&mut self.asked, Instant::now()) {
            Due::Nothing => {}
            Due::Look => self.ask(),
            Due::Start => {
                let duty = Duty::Space(&self.config.vm);
                if self.process.start_again(duty, &self.launch) {
                    self.set_up();
                }
            }
        }
    }

    /// Ask the process how it is, unless it has been asked already.
    fn ask(&mut self) {
        if self.asked.put(Instant::now()) {
            self.process.plane.orders.give(Order::Report, None);
        }
    }

    fn answer(&mut self) {
        let listen = self.clients.as_ref();
        let listen = listen.and_then(|clients| clients.local_addr().ok());
        self.asked.answer(&SpaceStatus {
            vm: self.config.vm.clone(),
            up: self.process.life.is_up(),
            restarts: self.process.life.restarts(),
            reason: self.process.trouble.clone(),
            listen,
            tls: self.config.tls.is_some(),
            figures: self.figures,
        });
    }
}
