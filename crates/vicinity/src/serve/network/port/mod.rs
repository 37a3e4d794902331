//! One port: its front-end, the front-end that waits, its quarantine, and its counters.

mod admission;
mod settings;
mod status;

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::net::{Shutdown, shutdown};
use switch::control::{
    Counters, DuplicateMac, Order, Peer, PortId, PortReport, Reason, UplinkKind,
};
use switch::guard::Rules;
use switch::mac::Mac;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use vhost::raw::ForeignFd;

use super::quarantine::ConnectionHistory;
use crate::serve::connections::Connection;
use crate::serve::process::handle::Orders;
use crate::serve::runtime_dir::SocketFile;
pub(in crate::serve) use settings::Settings;

/// The reason that a port in a storm shows.
const STORM: &str = "storm: the port keeps sending more broadcast, multicast or unknown unicast than its limits \
    allow";

/// What a port connects to, and which side listens.
#[derive(Debug)]
pub(in crate::serve) enum PortKind {
    /// A VM whose front-end connects to the supervisor.
    Server {
        /// The socket that the supervisor listens on.
        socket: PathBuf,
    },
    /// A VM to whose front-end the supervisor connects.
    Client {
        /// The socket that the front-end listens on.
        socket: PathBuf,
        /// Notifies the dialing task that the socket changed.
        wake: Arc<Notify>,
    },
    /// Other hosts.
    Uplink(UplinkKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Idle,
    /// Attached to the data plane.
    Attached {
        running: bool,
    },
    /// No front-end is served, and none is accepted.
    Quarantined {
        until: Instant,
    },
}

/// One port of a network.
#[derive(Debug)]
pub(in crate::serve) struct Port {
    pub(in crate::serve) id: PortId,
    pub(in crate::serve) name: String,
    pub(in crate::serve) kind: PortKind,
    settings: Settings,
    service: Service,
    /// When the log last had a line about a process that may not connect.
    last_warning: Option<Instant>,
    /// A second front-end, accepted when the first disconnects. Further ones wait in the kernel.
    waiting: Option<Connection>,
    /// Client mode: dropped when the dialing task may connect again.
    redial: Option<oneshot::Sender<()>>,
    history: ConnectionHistory,
    reason: Option<String>,
    connections: u64,
    quarantines: u64,
    /// Counters of connections that ended.
    totals: Counters,
    /// The present connection's last report.
    report: PortReport,
    /// A duplicate of the front-end's socket, to shut it down: a data plane that the kernel does not end would keep
    /// it open.
    stream: Option<ForeignFd>,
    task: Option<AbortHandle>,
    file: Option<SocketFile>,
}

impl Port {
    pub(in crate::serve) fn new(
        id: PortId,
        name: &str,
        kind: PortKind,
        settings: Settings,
    ) -> Self {
        Self {
            id,
            name: name.to_owned(),
            kind,
            settings,
            service: Service::Idle,
            last_warning: None,
            waiting: None,
            redial: None,
            history: ConnectionHistory::default(),
            reason: None,
            connections: 0,
            quarantines: 0,
            totals: Counters::default(),
            report: PortReport::default(),
            stream: None,
            task: None,
            file: None,
        }
    }

    /// Sets the task that accepts or dials this port's connections, and the file of the socket that it listens on.
    /// Both end with the port.
    pub(in crate::serve) fn set_source(&mut self, task: AbortHandle, file: Option<SocketFile>) {
        self.task = Some(task);
        self.file = file;
    }

    /// Sends the data plane the settings of this port that do not depend on the front-end.
    pub(in crate::serve) fn set_up(&self, orders: &mut Orders) {
        if self.settings.rules != Rules::default() {
            self.give_rules(self.settings.rules.clone(), orders);
        }
        self.pin(orders);
    }

    /// Changes the settings. Another address and other rules are in force at once, for a connected front-end too;
    /// another owner is in force for the next connection.
    pub(in crate::serve) fn change(&mut self, settings: Settings, orders: &mut Orders) {
        self.unpin(orders);
        self.settings = settings;
        self.give_rules(self.settings.rules.clone(), orders);
        self.pin(orders);
    }

    /// Removes the port: it accepts no front-end any more, and the data plane forgets all that has its number.
    pub(in crate::serve) fn leave(&mut self, orders: &mut Orders) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        (self.file, self.waiting, self.redial) = (None, None, None);
        self.unpin(orders);
        if self.settings.rules != Rules::default() {
            self.give_rules(Rules::default(), orders);
        }
    }

    fn give_rules(&self, rules: Rules, orders: &mut Orders) {
        let rules = Box::new(rules);
        let port = self.id;
        orders.push(Order::SetRules { port, rules }, None);
    }

    fn pin(&self, orders: &mut Orders) {
        let port = self.id;
        for (mac, vlan) in self.pins() {
            orders.push(Order::SetFdbEntry { mac, vlan, port }, None);
        }
    }

    fn unpin(&self, orders: &mut Orders) {
        for (mac, vlan) in self.pins() {
            orders.push(Order::RemoveFdbEntry { mac, vlan }, None);
        }
    }

    /// The address in each VLAN of the port.
    fn pins(&self) -> impl Iterator<Item = (Mac, u16)> {
        let vlans = self.settings.rules.vlan.as_ref();
        let vlans = vlans.map_or_else(|| vec![0], |vlans| vlans.all().collect());
        let mac = self.settings.mac;
        vlans.into_iter().filter_map(move |vlan| Some((mac?, vlan)))
    }

    /// Returns whether the port has no front-end and no quarantine, so that it can be removed.
    pub(in crate::serve) fn idle(&self) -> bool {
        self.service == Service::Idle
    }

    pub(in crate::serve) fn attached(&self) -> bool {
        matches!(self.service, Service::Attached { .. })
    }

    /// Returns when the owner has to call [`Self::tick`].
    pub(in crate::serve) fn deadline(&self) -> Option<Instant> {
        match self.service {
            Service::Quarantined { until } => Some(until),
            _ => None,
        }
    }

    /// Sets up the port in a data plane that was started again.
    pub(in crate::serve) fn reopen(&mut self, orders: &mut Orders) {
        self.set_up(orders);
        if self.idle() {
            self.redial = None;
        }
    }

    /// Hands the uplink's queues over to the data plane.
    pub(in crate::serve) fn attach_uplink(
        &mut self,
        queues: io::Result<Vec<OwnedFd>>,
        orders: &mut Orders,
    ) {
        let queues = match queues {
            Ok(queues) => queues,
            Err(error) => {
                tracing::error!(uplink = %self.name, %error, "cannot attach the uplink");
                self.reason = Some(format!("the host cannot serve the port: {error}"));
                return;
            }
        };
        let PortKind::Uplink(uplink_kind) = self.kind else {
            return;
        };
        let mut order = Order::AttachUplink {
            port: self.id,
            name: self.name.clone(),
            kind: uplink_kind,
        };
        for queue in queues {
            orders.push(order, Some(queue));
            order = Order::AddUplinkQueue { port: self.id };
        }
        self.service = Service::Attached { running: true };
        self.connections += 1;
    }

    /// Notes that the guest's driver has started.
    pub(in crate::serve) fn running(&mut self) {
        if self.attached() {
            // Once a connection: a guest may start its driver hundreds of times a second.
            if self.service == (Service::Attached { running: false }) {
                tracing::info!(port = %self.name, "the guest's driver runs");
            }
            self.service = Service::Attached { running: true };
        }
    }

    /// Takes the data plane's report about this port.
    pub(in crate::serve) fn reported(&mut self, report: PortReport) {
        if let Service::Attached { running } = &mut self.service {
            *running = report.running || matches!(self.kind, PortKind::Uplink(_));
            match (self.report.storm, report.storm) {
                (false, true) => tracing::warn!(port = %self.name, "{STORM}"),
                (true, false) => tracing::info!(port = %self.name, "the storm has ended"),
                _ => {}
            }
            self.report = report;
        }
    }

    /// Notes that the data plane no longer serves the front-end, and why.
    pub(in crate::serve) fn detached(
        &mut self,
        reason: Reason,
        counters: &Counters,
        now: Instant,
        orders: &mut Orders,
    ) {
        if !self.attached() {
            tracing::error!(port = %self.name, "internal error, report it as a bug: the data plane detached a port \
                that was not attached");
            return;
        }
        self.totals = self.totals.plus(counters);
        self.report = PortReport::default();
        self.stream = None;
        self.service = Service::Idle;
        match reason {
            Reason::Ordered => self.reason = None,
            Reason::Disconnected => {
                tracing::info!(port = %self.name, "the front-end disconnected");
                self.reason = Some("the front-end disconnected".to_owned());
            }
            Reason::Fault(fault) => self.quarantine(fault, now),
            Reason::Host(failure_reason) => {
                self.quarantine(
                    format!("the host cannot serve the port: {failure_reason}"),
                    now,
                );
            }
        }
        if self.idle() {
            self.open(now, orders);
        }
    }

    /// Notes that the data plane is gone: the totals are those of its last report. A quarantine continues, and the
    /// supervisor connects to no front-end before [`Self::reopen`]. The shutdown of the socket notifies the
    /// front-end even if the kernel does not end the data plane, which keeps its descriptors then.
    pub(in crate::serve) fn lost(&mut self) {
        if let Some(stream) = self.stream.take() {
            // An error means that the front-end is gone already.
            let _gone = shutdown(&stream, Shutdown::Both);
        }
        self.totals = self.totals.plus(&self.report.counters);
        self.report = PortReport::default();
        if self.attached() {
            self.service = Service::Idle;
        }
        self.waiting = None;
    }

    /// Notes why an idle port has no front-end.
    pub(in crate::serve) fn unreachable(&mut self, reason: String) {
        if self.idle() {
            tracing::debug!(port = %self.name, reason, "cannot reach the front-end");
            self.reason = Some(reason);
        }
    }

    /// Ends the quarantine if its time is over.
    pub(in crate::serve) fn tick(&mut self, now: Instant, orders: &mut Orders) {
        if self.deadline().is_some_and(|until| until <= now) {
            tracing::info!(port = %self.name, "the quarantine has ended");
            self.service = Service::Idle;
            self.open(now, orders);
        }
    }

    /// Accepts the next front-end.
    fn open(&mut self, now: Instant, orders: &mut Orders) {
        self.redial = None;
        if let Some(connection) = self.waiting.take() {
            self.admit(connection, now, orders);
        }
    }

    fn quarantine(&mut self, reason: String, now: Instant) {
        let until = self.history.quarantine(now);
        let seconds = until.duration_since(now).as_secs();
        tracing::warn!(port = %self.name, reason, seconds, "the port is in quarantine");
        self.service = Service::Quarantined { until };
        self.waiting = None;
        self.quarantines += 1;
        self.reason = Some(reason);
    }

    /// Returns the addresses that another port uses too.
    pub(in crate::serve) fn duplicates(&self) -> &[DuplicateMac] {
        &self.report.duplicates
    }

    /// Returns what the present connection sent to each port, by port number.
    pub(in crate::serve) fn peers(&self) -> &[Peer] {
        &self.report.peers
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

#[cfg(test)]
mod tests;
