//! One network: the only place where its ports change.
//!
//! Everything that happens to a network comes to [`Network::run`] one at a time: connections
//! from the accepting and dialing tasks, events from the data plane, sockets that appear in
//! folders, questions from the control API, and time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use switch::control::{Event, Order, PortId, WorkerReport};
use switch::guard::Rules;
use switch::mac::Mac;
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::answer::Answer;
use super::arrivals::{self, Arrival};
use super::folder;
use super::home::{Folder, SocketFile};
use super::launch::{Duty, Launch};
use super::life::Life;
use super::parts::Parts;
use super::plane::Plane;
use super::port::{Port, Way};
use crate::config::{self, MAX_PORTS};
use crate::name;

/// A data plane answers a question, and ends when told to, within so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

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

/// A network at work.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: config::Network,
    pub(super) launch: Launch,
    pub(super) plane: Plane,
    pub(super) life: Life,
    watch: folder::Watch,
    pub(super) ports: BTreeMap<PortId, Port>,
    /// The uplink's port and its tap, kept for the next data plane.
    pub(super) uplink: Option<(PortId, OwnedFd)>,
    inbox: mpsc::Receiver<Message>,
    /// For the tasks that bring connections.
    outlet: mpsc::Sender<Message>,
    /// Who wants to know the state, and until when the data plane may take to tell it.
    pub(super) asked: Vec<oneshot::Sender<Answer>>,
    pub(super) answer_by: Option<Instant>,
    pub(super) worker: WorkerReport,
    /// Why the data plane is gone.
    pub(super) trouble: Option<String>,
    _folder: Folder,
}

impl Network {
    /// Start a data plane, and bring up every configured port.
    pub(super) fn start(parts: Parts, launch: Launch) -> std::io::Result<Self> {
        let (outlet, inbox) = mpsc::channel(INBOX);
        let mut network = Self {
            plane: Plane::start(Duty::Network(&parts.config), &launch)?,
            config: parts.config,
            launch,
            life: Life::new(Instant::now()),
            watch: parts.watch,
            ports: BTreeMap::new(),
            uplink: None,
            inbox,
            outlet,
            asked: Vec::new(),
            answer_by: None,
            worker: WorkerReport::default(),
            trouble: None,
            _folder: parts.folder,
        };
        network.set_up();
        if let Some((name, tap)) = parts.uplink {
            let rules = network.config.uplink_rules.clone();
            if let Some(port) = network.new_port(&name, Way::Uplink, None, rules) {
                network.uplink = Some((port.id, tap));
                network.ports.insert(port.id, port);
                network.attach_uplink();
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

    /// Tell the data plane all that holds for the network whoever is connected.
    pub(super) fn set_up(&mut self) {
        if self.config.snooping {
            let order = Order::SetSnooping { on: true };
            self.plane.orders.give(order, None);
        }
        let micros = self.config.gather_us;
        if micros != config::GATHER_US {
            let order = Order::SetGather { micros };
            self.plane.orders.give(order, None);
        }
    }

    /// Give the uplink to the data plane, which gets a descriptor of its own.
    pub(super) fn attach_uplink(&mut self) {
        let Some((id, tap)) = &self.uplink else {
            return;
        };
        if let Some(port) = self.ports.get_mut(id) {
            port.attach_uplink(tap.try_clone(), &mut self.plane.orders);
        }
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
                self.answer();
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Arrival(arrival) => {
                let up = self.life.is_up();
                match self.ports.get_mut(&arrival.port) {
                    Some(port) if up => {
                        port.arrive(arrival, Instant::now(), &mut self.plane.orders);
                    }
                    Some(port) => port.turn_away(arrival),
                    None => {}
                }
            }
            Message::Unreachable { port, reason } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    port.unreachable(reason);
                }
            }
            Message::Ask(asker) => {
                self.asked.push(asker);
                match self.life.is_up() {
                    true => self.ask(Instant::now()),
                    false => self.answer(),
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
        let rules = self.config.unlisted_rules.clone();
        self.dialed(vm, path.to_owned(), None, rules);
    }

    fn configured(&mut self, config: config::Port, socket: Option<(UnixListener, SocketFile)>) {
        let Some((listener, file)) = socket else {
            return self.dialed(&config.vm, config.socket, config.mac, config.rules);
        };
        let way = Way::Server {
            socket: config.socket,
        };
        if let Some(mut port) = self.new_port(&config.vm, way, config.mac, config.rules) {
            let task = arrivals::accept(port.id, listener, self.outlet.clone());
            port.fed_by(tokio::spawn(task).abort_handle(), Some(file));
            self.ports.insert(port.id, port);
        }
    }

    fn dialed(&mut self, vm: &str, socket: PathBuf, mac: Option<Mac>, rules: Rules) {
        let wake = Arc::new(Notify::new());
        let way = Way::Client {
            socket: socket.clone(),
            wake: wake.clone(),
        };
        if let Some(mut port) = self.new_port(vm, way, mac, rules) {
            let task = arrivals::dial(port.id, socket, wake, self.outlet.clone());
            port.fed_by(tokio::spawn(task).abort_handle(), None);
            self.ports.insert(port.id, port);
        }
    }

    fn new_port(&mut self, vm: &str, way: Way, mac: Option<Mac>, rules: Rules) -> Option<Port> {
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
        let port = Port::new(id, vm, way, mac, rules);
        port.set_up(&mut self.plane.orders);
        Some(port)
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
        let life = self.life.deadline();
        quarantines.chain(self.answer_by).chain(life).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for port in self.ports.values_mut() {
            port.tick(now, &mut self.plane.orders);
        }
        self.live(now);
    }

    async fn stop(mut self) {
        if !self.life.is_up() {
            return;
        }
        self.plane.orders.give(Order::Stop, None);
        let ended = async {
            while self.plane.next_event::<Event>().await.is_some() {}
            self.plane.verdict().await
        };
        if tokio::time::timeout(PATIENCE, ended).await.is_err() {
            tracing::error!(network = %self.config.name, "our bug: the data plane does not stop");
        }
    }
}

pub(super) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
