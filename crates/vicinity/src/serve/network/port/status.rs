//! The status of a port, for the control API.

use tokio::time::Instant;

use super::{Port, PortKind, STORM, Service};
use crate::config::Mode;
use crate::status::{Kind, PortStatus, State};

impl Port {
    /// Returns the status of the port at `now`.
    pub(in crate::serve) fn status(&self, network: &str, up: bool, now: Instant) -> PortStatus {
        let uplink = matches!(self.kind, PortKind::Uplink(_));
        let state = match self.service {
            _ if !up => State::Down,
            Service::Idle if uplink => State::Down,
            Service::Idle => State::Waiting,
            Service::Attached { running: false } => State::Connected,
            Service::Attached { running: true } if self.report.logging => State::Migrating,
            Service::Attached { running: true } => State::Running,
            Service::Quarantined { .. } => State::Quarantined,
        };
        let (mode, socket) = match &self.kind {
            PortKind::Server { socket } => (Some(Mode::Server), Some(socket)),
            PortKind::Client { socket, .. } => (Some(Mode::Client), Some(socket)),
            PortKind::Uplink(_) => (None, None),
        };
        let left = self
            .deadline()
            .map(|until| until.duration_since(now).as_millis());
        PortStatus {
            network: network.to_owned(),
            vm: self.name.clone(),
            kind: if uplink { Kind::Uplink } else { Kind::Vm },
            state,
            mode,
            socket: socket.map(|path| path.display().to_string()),
            mac: self.settings.mac,
            rules: self.settings.rules.clone(),
            residents: self.report.fdb_entries,
            fdb_entries: self.report.fdb_entries,
            features: self.report.features,
            mtu: self.report.mtu,
            connections: self.connections,
            quarantines: self.quarantines,
            quarantine_left_ms: left.map(|left| u64::try_from(left).unwrap_or(u64::MAX)),
            reason: match self.report.storm {
                true => Some(STORM.to_owned()),
                false => self.reason.clone(),
            },
            stuck_ms: self.report.stuck_ms,
            counters: self.totals.plus(&self.report.counters),
            sent_to: Vec::new(),
            mirrors: Vec::new(),
            duplicates: Vec::new(),
            remote_peers: Vec::new(),
        }
    }
}
