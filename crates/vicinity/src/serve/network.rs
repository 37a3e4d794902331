//! One network: the only place where its ports change.
//!
//! Everything that happens to a network comes to [`Network::run`] one at a time: connections
//! from the accepting and dialing tasks, events from the data plane, sockets that appear in
//! folders, questions from the control API, and time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use switch::control::{Event, Order, PortId, WorkerReport};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::arrivals::{self, Arrival};
use super::folder;
use super::home::{Folder, SocketFile};
use super::parts::Parts;
use super::plane::{Plane, Run};
use super::port::{Port, Way};
use crate::config::{self, MAX_PORTS};
use crate::name;
use crate::status::{NetworkStatus, PortStatus};

/// A data plane answers a question, and ends when told to, within so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waiting messages: more senders than that wait themselves.
const INBOX: usize = 64;

/// What others tell a network.
#[derive(Debug)]
pub(super) enum Message {
    /// A front-end is connected.
    Arrival(Arrival),
    /// A front-end cannot be connected to.
    Unreachable {
        /// Which port's.
        port: PortId,
        /// Why.
        reason: String,
    },
    /// Somebody wants to know the state.
    Ask(oneshot::Sender<Answer>),
    /// Stop the data plane and end.
    Stop,
}

/// A network's state.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) network: NetworkStatus,
    pub(super) ports: Vec<PortStatus>,
}

/// A network at work.
#[derive(Debug)]
pub(super) struct Network {
    config: config::Network,
    plane: Plane,
    watch: folder::Watch,
    ports: BTreeMap<PortId, Port>,
    inbox: mpsc::Receiver<Message>,
    /// For the tasks that bring connections.
    outlet: mpsc::Sender<Message>,
    /// Who wants to know the state, and until when the data plane may take to tell it.
    asked: Vec<oneshot::Sender<Answer>>,
    answer_by: Option<Instant>,
    worker: WorkerReport,
    /// Why the data plane is gone, or why its figures are old.
    trouble: Option<String>,
    up: bool,
    _folder: Folder,
}

impl Network {
    /// Start the data plane `run`, and bring up every configured port.
    pub(super) fn start(parts: Parts, run: Run) -> std::io::Result<Self> {
        let (outlet, inbox) = mpsc::channel(INBOX);
        let mut network = Self {
            plane: Plane::start(&parts.config.name, run)?,
            config: parts.config,
            watch: parts.watch,
            ports: BTreeMap::new(),
            inbox,
            outlet,
            asked: Vec::new(),
            answer_by: None,
            worker: WorkerReport::default(),
            trouble: None,
            up: true,
            _folder: parts.folder,
        };
        if let Some((name, tap)) = parts.uplink {
            if let Some(mut port) = network.new_port(&name, Way::Uplink, None) {
                port.attach_uplink(tap, &mut network.plane.orders);
                network.ports.insert(port.id, port);
            }
        }
        for (config, listening) in parts.ports {
            network.configured(config, listening);
        }
        if network.config.accept {
            network.appeared(&folder::entries(&network.config.folder.clone()));
        }
        Ok(network)
    }

    /// Where to send this network its messages.
    pub(super) fn address(&self) -> mpsc::Sender<Message> {
        self.outlet.clone()
    }

    /// Serve until told to stop.
    pub(super) async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                event = self.plane.next_event() => match event {
                    Some(event) => self.event(event),
                    None => self.data_plane_ended().await,
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Stop) | None => break,
                    Some(message) => self.message(message),
                },
                paths = self.watch.appeared() => match paths {
                    Ok(paths) => self.appeared(&paths),
                    Err(error) => {
                        tracing::error!(%error, network = %self.config.name, "cannot watch");
                    }
                },
                () = sleep_until(deadline) => self.tick(),
            }
        }
        self.stop().await;
    }

    fn event(&mut self, event: Event) {
        let orders = &mut self.plane.orders;
        match event {
            Event::Running { port } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    port.running();
                }
            }
            Event::Detached {
                port,
                reason,
                counters,
            } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    port.detached(reason, &counters, Instant::now(), orders);
                }
            }
            Event::Report(report) => {
                if let Some(port) = self.ports.get_mut(&PortId(report.port)) {
                    port.reported(*report);
                }
            }
            Event::ReportEnd(worker) => {
                self.worker = worker;
                self.trouble = None;
                self.answer();
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            // Dropped, hence closed, when the network is down.
            Message::Arrival(arrival) => {
                if let (true, Some(port)) = (self.up, self.ports.get_mut(&arrival.port)) {
                    port.arrive(arrival, Instant::now(), &mut self.plane.orders);
                }
            }
            Message::Unreachable { port, reason } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    port.unreachable(reason);
                }
            }
            Message::Ask(asker) => {
                self.asked.push(asker);
                if !self.up {
                    self.answer();
                } else if self.answer_by.is_none() {
                    self.answer_by = Some(Instant::now() + PATIENCE);
                    self.plane.orders.give(Order::Report, None);
                }
            }
            Message::Stop => {}
        }
    }

    /// Paths that appeared in watched folders.
    fn appeared(&mut self, paths: &[PathBuf]) {
        for path in paths {
            let known = self.ports.values().find(|port| match &port.way {
                Way::Server { socket } | Way::Client { socket, .. } => socket == path,
                Way::Uplink => false,
            });
            match known.map(|port| &port.way) {
                Some(Way::Client { wake, .. }) => wake.notify_one(),
                Some(_) => {}
                None => self.stranger(path),
            }
        }
    }

    /// A path that belongs to no port: a new port, if the network accepts it.
    fn stranger(&mut self, path: &Path) {
        let here = path.parent() == Some(&self.config.folder);
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_socket = path
            .extension()
            .is_some_and(|extension| extension == "sock");
        let Some(vm) = stem.filter(|_| self.config.accept && here && is_socket) else {
            return;
        };
        if let Err(error) = name::check(vm) {
            tracing::warn!(socket = %path.display(), %error, "socket ignored");
            return;
        }
        if self.ports.values().any(|port| port.name == vm) {
            tracing::warn!(socket = %path.display(), "socket ignored: VM {vm} has another one");
            return;
        }
        self.dialed(vm, path.to_owned(), None);
    }

    fn configured(&mut self, config: config::Port, socket: Option<(UnixListener, SocketFile)>) {
        let Some((listener, file)) = socket else {
            return self.dialed(&config.vm, config.socket, config.mac);
        };
        let way = Way::Server {
            socket: config.socket,
        };
        if let Some(mut port) = self.new_port(&config.vm, way, config.mac) {
            let task = arrivals::accept(port.id, listener, self.outlet.clone());
            port.fed_by(tokio::spawn(task).abort_handle(), Some(file));
            self.ports.insert(port.id, port);
        }
    }

    fn dialed(&mut self, vm: &str, socket: PathBuf, mac: Option<switch::mac::Mac>) {
        let wake = Arc::new(Notify::new());
        let way = Way::Client {
            socket: socket.clone(),
            wake: wake.clone(),
        };
        if let Some(mut port) = self.new_port(vm, way, mac) {
            let task = arrivals::dial(port.id, socket, wake, self.outlet.clone());
            port.fed_by(tokio::spawn(task).abort_handle(), None);
            self.ports.insert(port.id, port);
        }
    }

    fn new_port(&mut self, vm: &str, way: Way, mac: Option<switch::mac::Mac>) -> Option<Port> {
        if self.ports.len() >= MAX_PORTS {
            self.forget_one();
        }
        // The lowest free number: the data plane may keep tables by number.
        let free = (0..u16::MAX)
            .map(PortId)
            .take(MAX_PORTS)
            .find(|id| !self.ports.contains_key(id));
        let Some(id) = free else {
            tracing::error!(
                network = %self.config.name,
                vm,
                "no port for this VM: a network has at most {MAX_PORTS} ports"
            );
            return None;
        };
        if let Some(mac) = mac {
            let order = Order::SetResidency { mac, port: id };
            self.plane.orders.give(order, None);
        }
        Some(Port::new(id, vm, way, mac))
    }

    /// Make room by forgetting a port that was accepted and whose socket is gone.
    fn forget_one(&mut self) {
        let listed = |vm: &str| self.config.ports.iter().any(|port| port.vm == vm);
        let gone = self.ports.values().find(|port| match &port.way {
            Way::Client { socket, .. } => port.idle() && !socket.exists() && !listed(&port.name),
            _ => false,
        });
        if let Some(id) = gone.map(|port| port.id) {
            self.ports.remove(&id);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let quarantines = self.ports.values().filter_map(Port::deadline);
        quarantines.chain(self.answer_by).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for port in self.ports.values_mut() {
            port.tick(now, &mut self.plane.orders);
        }
        if self.answer_by.is_some_and(|by| by <= now) {
            tracing::error!(network = %self.config.name, "our bug: the data plane does not answer");
            self.trouble = Some("the data plane does not answer; figures are old".to_owned());
            self.answer();
        }
    }

    async fn data_plane_ended(&mut self) {
        let verdict = self.plane.verdict().await;
        tracing::error!(
            network = %self.config.name,
            verdict,
            "our bug: the data plane ended by itself; the network is down until Vicinity is \
             restarted"
        );
        self.up = false;
        self.trouble = Some(format!("the data plane ended by itself: {verdict}"));
        for port in self.ports.values_mut() {
            port.lost();
        }
        self.answer();
    }

    fn answer(&mut self) {
        self.answer_by = None;
        let now = Instant::now();
        let name = &self.config.name;
        let ports = self.ports.values();
        let answer = Answer {
            ports: ports.map(|port| port.status(name, self.up, now)).collect(),
            network: NetworkStatus {
                name: name.clone(),
                up: self.up,
                reason: self.trouble.clone(),
                uplink: self.config.uplink.clone(),
                folder: self.config.folder.display().to_string(),
                accept: self.config.accept,
                ports: self.ports.len(),
                attached: self.ports.values().filter(|port| port.attached()).count(),
                worker: self.worker,
            },
        };
        for asker in self.asked.drain(..) {
            // An asker that is gone needs no answer.
            drop(asker.send(answer.clone()));
        }
    }

    async fn stop(mut self) {
        if !self.up {
            return;
        }
        self.plane.orders.give(Order::Stop, None);
        let ended = async { while self.plane.next_event().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            tracing::error!(network = %self.config.name, "our bug: the data plane does not stop");
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
