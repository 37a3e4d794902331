//! The source of readings of the host and of the daemon's counters.

use std::path::{Path, PathBuf};

use observe::rates;
use observe::reader::{Daemon, Reader};
use observe::reading::{Port, Reading, Sent};
use observe::report::Report;

use crate::client;
use crate::status::{Kind, PortStatus};

/// Takes readings of the host one after another, with the daemon's counters.
#[derive(Debug)]
pub(super) struct Source {
    runtime_dir: PathBuf,
    reader: Reader,
    watts_per_cpu: f64,
    last: Option<Reading>,
}

impl Source {
    pub(super) fn new(runtime_dir: &Path, watts_per_cpu: f64) -> Self {
        let mut reader = Reader::default();
        reader.record_switches();
        Self {
            runtime_dir: runtime_dir.to_owned(),
            reader,
            watts_per_cpu,
            last: None,
        }
    }

    pub(super) fn read(&mut self) -> Reading {
        let daemon = daemon(&self.runtime_dir);
        self.reader.read(daemon)
    }

    /// Returns what happened since the last call; `None` at the first call.
    pub(super) fn next(&mut self) -> Option<Report> {
        let now = self.read();
        let last = self.last.replace(now);
        let meter = self.reader.meter();
        Some(rates::report(
            &last?,
            self.last.as_ref()?,
            meter,
            self.watts_per_cpu,
        ))
    }
}

/// Returns the daemon and the counters of its VMs; `None` without a daemon. `vicinity top` watches
/// VMs also without a daemon.
fn daemon(runtime_dir: &Path) -> Option<Daemon> {
    let (pid, ports): (u32, Vec<PortStatus>) =
        client::ask(runtime_dir, client::ApiRequest::get("/v1/ports")).ok()?;
    let sent = ports.iter().flat_map(sent).collect();
    let vms = ports.into_iter().filter(|port| port.kind == Kind::Vm);
    Some(Daemon {
        pid,
        ports: vms.map(reading).collect(),
        sent,
    })
}

fn reading(status: PortStatus) -> Port {
    Port {
        traffic: status.traffic(),
        network: status.network,
        vm: status.vm,
        socket: status.socket,
    }
}

fn sent(status: &PortStatus) -> impl Iterator<Item = Sent> + '_ {
    status.sent_to.iter().map(|to| Sent {
        network: status.network.clone(),
        from: status.vm.clone(),
        to: to.vm.clone(),
        frames: to.frames,
        bytes: to.bytes,
    })
}
