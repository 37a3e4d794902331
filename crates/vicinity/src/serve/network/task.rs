//! The task of a network: the only place where its ports change.
//!
//! Everything that happens to a network comes to [`Network::run`] one at a time: connections
//! from the accepting and dialing tasks, events from the data plane, sockets that appear in
//! folders, questions from the control API, and time.

use std::collections::BTreeMap;

use switch::control::{Event, Order, PortId, WorkerReport};
use switch::limits::MAX_REPORTED_REMOTE_PEERS;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::fdb_list::FdbList;
use super::message::Message;
use super::port::Port;
use super::resources::NetworkResources;
use super::{Mirrors, Network};
use crate::serve::process::deadline::{ANSWER_TIMEOUT, sleep_until};
use crate::serve::process::handle::Process;
use crate::serve::process::launch::{Launch, ProcessKind};
use crate::serve::process::lifecycle::Lifecycle;
use crate::serve::process::pending_request::PendingRequest;

/// Messages that may wait; further senders wait until there is room.
const INBOX: usize = 64;

impl Network {
    /// Starts a data plane and brings up every configured port.
    pub(in crate::serve) fn start(
        parts: NetworkResources,
        launch: Launch,
    ) -> std::io::Result<Self> {
        let (sender, inbox) = mpsc::channel(INBOX);
        let mut network = Self {
            plane: Process::start(ProcessKind::Network(&parts.config), &launch)?,
            config: parts.config,
            launch,
            lifecycle: Lifecycle::new(Instant::now()),
            watch: parts.watch,
            ports: BTreeMap::new(),
            leaving: BTreeMap::new(),
            changing: Vec::new(),
            watches: Vec::new(),
            mirrors: Mirrors::new(),
            uplink: None,
            inbox,
            sender,
            pending: PendingRequest::new(ANSWER_TIMEOUT),
            worker: WorkerReport::default(),
            remote_peers: Vec::new(),
            arriving_remote_peers: Vec::new(),
            fdb_list: FdbList::default(),
            failure_reason: None,
            _folder: parts.folder,
        };
        network.set_up();
        if let Some(uplink) = parts.uplink {
            network.new_uplink(uplink);
        }
        for port in parts.ports {
            network.configured(port);
        }
        network.scan_folder();
        network.order_mirrors();
        Ok(network)
    }

    /// Returns the sender for messages to this network.
    pub(in crate::serve) fn address(&self) -> mpsc::Sender<Message> {
        self.sender.clone()
    }

    /// Serves until [`Message::Stop`].
    pub(in crate::serve) async fn run(mut self) {
        loop {
            let deadline = self.deadline();
            tokio::select! {
                event = self.plane.next_event() => match event {
                    Some(event) => self.event(event),
                    None => {
                        let exit_reason = self.plane.exit_reason().await;
                        self.data_plane_ended(&exit_reason);
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
                        tracing::error!(%error, network = %self.config.name, "cannot watch the network's folder \
                        for sockets");
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
            Event::RemotePeers(peers) => {
                let known = self.arriving_remote_peers.len();
                let room = MAX_REPORTED_REMOTE_PEERS.saturating_sub(known);
                self.arriving_remote_peers
                    .extend(peers.into_iter().take(room));
            }
            Event::FdbEntries { entries, next } => self.fdb_entries(entries, next),
            Event::ReportEnd(worker) => {
                self.worker = worker;
                self.remote_peers = std::mem::take(&mut self.arriving_remote_peers);
                self.answer();
            }
        }
    }

    fn message(&mut self, message: Message) {
        match message {
            Message::Connected(port, connection) => {
                let up = self.lifecycle.is_up();
                match self.ports.get_mut(&port) {
                    Some(port) if up => {
                        port.connected(connection, Instant::now(), &mut self.plane.orders);
                    }
                    Some(port) => port.reject(connection),
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
                self.pending.add_waiter(asker, now);
                match self.lifecycle.is_up() {
                    true => self.request_report(now),
                    false => self.answer(),
                }
            }
            Message::ListFdb(asker) => self.list_fdb(asker),
            Message::Watch(vm, bytes, answer) => {
                // The subscriber may have closed its end already; the subscription then ends soon.
                drop(answer.send(self.watch_port(&vm, bytes)));
            }
            Message::Unwatch(port, number) => self.unwatch(port, number),
            Message::Change(change, done) => self.change(*change, done),
            Message::Stop => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let quarantines = self.ports.values().filter_map(Port::deadline);
        let life = self.lifecycle.deadline();
        quarantines.chain(self.pending.deadline()).chain(life).min()
    }

    fn tick(&mut self) {
        let now = Instant::now();
        for port in self.ports.values_mut() {
            port.tick(now, &mut self.plane.orders);
        }
        self.supervise(now);
    }

    async fn stop(mut self) {
        if !self.lifecycle.is_up() {
            return;
        }
        if !self.plane.stop::<Event>(Order::Stop, ANSWER_TIMEOUT).await {
            tracing::error!(network = %self.config.name, "internal error, report it as a bug: the data plane does \
                not stop");
        }
    }
}
