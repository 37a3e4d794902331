//! One network: the only place where its ports change.
//!
//! Everything that happens to a network comes to [`Network::run`] one at a time: connections
//! from the accepting and dialing tasks, events from the data plane, sockets that appear in
//! folders, questions from the control API, and time.

mod config_apply;
pub(super) mod config_diff;
mod folder;
mod mirrors;
pub(super) mod parts;
mod port;
mod ports;
mod quarantine;
pub(super) mod status_reply;
pub(super) mod subscriptions;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use switch::control::{Event, Order, PortId, WorkerReport};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use self::config_diff::Change;
use self::mirrors::Mirrors;
use self::parts::Parts;
use self::port::Port;
use self::status_reply::Answer;
use self::subscriptions::{Watch, WatchError, Watched};
use super::connections::Arrival;
use super::interface::{self, UplinkError};
use super::process::launch::{Duty, Launch};
use super::process::lifecycle::Lifecycle;
use super::process::pending_request::PendingRequest;
use super::process::plane::Plane;
use super::runtime_dir::Folder;
use crate::config;

/// A data plane answers a question, and ends when told to, within so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Waiting messages: more senders than that wait themselves.
const INBOX: usize = 64;

/// What others tell a network.
#[derive(Debug)]
pub(super) enum Message {
    /// A front-end is connected.
    Arrival(PortId, Arrival),
    /// A front-end cannot be connected to.
    Unreachable {
        /// Which port's.
        port: PortId,
        /// Why.
        reason: String,
    },
    /// Somebody wants to know the state.
    Ask(oneshot::Sender<Answer>),
    /// Somebody wants to see a port's frames, so many bytes of each.
    Watch(String, u32, oneshot::Sender<Result<Watched, WatchError>>),
    /// He does no more.
    Unwatch(PortId, u32),
    /// The configuration changed; told when the change is in force and those that left are gone.
    Change(Box<Change>, oneshot::Sender<()>),
    /// Stop the data plane and end.
    Stop,
}

/// A network at work.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: config::Network,
    pub(super) launch: Launch,
    pub(super) plane: Plane,
    pub(super) life: Lifecycle,
    pub(super) watch: folder::Watch,
    pub(super) ports: BTreeMap<PortId, Port>,
    /// Ports that were removed and whose memory the data plane may still have.
    pub(super) leaving: BTreeMap<PortId, Port>,
    /// Who waits for them to be gone.
    pub(super) changing: Vec<oneshot::Sender<()>>,
    /// Who sees which port's frames.
    pub(super) watches: Vec<Watch>,
    /// Whose frames are copied to whom.
    pub(super) mirrors: Mirrors,
    /// The uplink's port and its queues, kept for the next data plane.
    pub(super) uplink: Option<(PortId, Vec<OwnedFd>)>,
    inbox: mpsc::Receiver<Message>,
    /// For the tasks that bring connections.
    pub(super) outlet: mpsc::Sender<Message>,
    /// Who wants to know the state, and until when the data plane may take to tell it.
    pub(super) asked: PendingRequest<Answer>,
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
            life: Lifecycle::new(Instant::now()),
            watch: parts.watch,
            ports: BTreeMap::new(),
            leaving: BTreeMap::new(),
            changing: Vec::new(),
            watches: Vec::new(),
            mirrors: Mirrors::new(),
            uplink: None,
            inbox,
            outlet,
            asked: PendingRequest::new(PATIENCE),
            worker: WorkerReport::default(),
            trouble: None,
            _folder: parts.folder,
        };
        network.set_up();
        if let Some(uplink) = parts.uplink {
            network.new_uplink(uplink);
        }
        for port in parts.ports {
            network.configured(port);
        }
        network.look();
        network.order_mirrors();
        Ok(network)
    }

    /// Tell the data plane all that holds for the network whoever is connected.
    pub(super) fn set_up(&mut self) {
        let on = self.config.snooping;
        let micros = self.config.gather_us;
        let times = self.config.look_ups.unwrap_or(0);
        for order in [
            Order::SetSnooping { on },
            Order::SetGather { micros },
            Order::SetLookUps { times },
        ] {
            self.plane.orders.give(order, None);
        }
    }

    /// Give the uplink to the data plane, which gets descriptors of its own.
    pub(super) fn attach_uplink(&mut self) {
        let Some((id, queues)) = &self.uplink else {
            return;
        };
        if let Some(port) = self.ports.get_mut(id) {
            let given = self.config.uplink.as_ref().map_or(0, interface::given);
            let queues = queues.iter().take(given).map(OwnedFd::try_clone);
            port.attach_uplink(queues.collect(), &mut self.plane.orders);
        }
    }

    /// What of the uplink was its last data plane's alone is taken anew.
    pub(super) fn renew_uplink(&mut self) -> Result<(), UplinkError> {
        let once = self.config.uplink.as_ref().is_some_and(interface::once);
        if let (true, Some((_, queues))) = (once, &mut self.uplink) {
            // The interface's queue has one owner, and the kernel takes a moment to notice that it is gone.
            queues.clear();
            *queues = interface::open(&self.config)?.unwrap_or_default();
        }
        Ok(())
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
                    None => {
                        let verdict = self.plane.verdict().await;
                        self.data_plane_ended(&verdict);
                    }
                },
                message = self.inbox.recv() => match message {
                    Some(Message::Stop) | None => break,
                    Some(message) => self.message(message),
                },
                paths = self.watch.appeared() => match paths {
                    Ok(paths) => {
                        self.appeared(&paths);
                        self.order_mirrors();
                    }
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
            } => match self.ports.get_mut(&port) {
                Some(port) => port.detached(reason, &counters, Instant::now(), orders),
                None => self.left(port),
            },
            Event::Report(reports) => {
                for report in reports {
                    if let Some(port) = self.ports.get_mut(&PortId(report.port)) {
                        port.reported(report);
                    }
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
            Message::Arrival(port, arrival) => {
                let up = self.life.is_up();
                match self.ports.get_mut(&port) {
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
                let now = Instant::now();
                self.asked.wait(asker, now);
                match self.life.is_up() {
                    true => self.ask(now),
                    false => self.answer(),
                }
            }
            Message::Watch(vm, bytes, answer) => {
                // Who asked may be gone: that will be noticed as soon.
                drop(answer.send(self.watch_port(&vm, bytes)));
            }
            Message::Unwatch(port, number) => self.unwatch(port, number),
            Message::Change(change, done) => self.change(*change, done),
            Message::Stop => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let quarantines = self.ports.values().filter_map(Port::deadline);
        let life = self.life.deadline();
        quarantines.chain(self.asked.deadline()).chain(life).min()
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
        if !self.plane.stop::<Event>(Order::Stop, PATIENCE).await {
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
