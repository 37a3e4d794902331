//! Makes [`Live`] of what the observer read and what the control API says.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use observe::rates;
use observe::reader::{Daemon, Reader};
use observe::reading::{Channel, Port, Reading, Sent};

use super::detector::Observed;
use super::names::printable;
use super::remote_peer::remote_peers;
use super::{ApiState, Detector, Live, LiveNetwork, LivePort, VERSION};
use crate::status::{Kind, PortStatus, SentTo};

/// Takes readings one after another.
#[derive(Debug)]
pub(crate) struct Sampler {
    reader: Reader,
    watts_per_cpu: f64,
    detector: Detector,
    last: Option<(Reading, Vec<PortStatus>)>,
}

impl Sampler {
    /// Creates a sampler. With `switches`, the kernel records switches between VMs from now on, if it permits that.
    pub(crate) fn new(watts_per_cpu: f64, switches: bool) -> Self {
        let mut reader = Reader::default();
        if switches {
            reader.record_switches();
        }
        Self {
            reader,
            watts_per_cpu,
            detector: Detector::default(),
            last: None,
        }
    }

    /// Takes a reading.
    pub(crate) fn read(&mut self, api: &ApiState) -> Reading {
        self.reader.read(daemon(api))
    }

    /// Returns what happened since the last call; `None` at the first call.
    pub(crate) fn next(&mut self, api: &ApiState) -> Option<Live> {
        let now = self.read(api);
        let last = self.last.replace((now, api.ports.clone()));
        let (earlier, ports) = last?;
        let (now, _) = self.last.as_ref()?;
        let mut report = rates::report(&earlier, now, self.reader.meter(), self.watts_per_cpu);
        // These are from command lines of other programs.
        for vm in &mut report.vms {
            vm.name = printable(&vm.name);
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let mut live = Live {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            at: since.unwrap_or_default().as_secs_f64(),
            problems: Vec::new(),
            networks: api.networks.iter().map(LiveNetwork::from).collect(),
            ports: live_ports(&api.ports, &ports, report.seconds),
            remote_peers: remote_peers(&api.ports, &ports, report.seconds),
            direct: api.direct.clone(),
            spaces: api.spaces.clone(),
            messages: api.messages.clone(),
            report,
        };
        live.problems = self.detector.problems(&Observed {
            at: live.at,
            report: &live.report,
            networks: &api.networks,
            ports: &live.ports,
            direct: &live.direct,
            spaces: &live.spaces,
            messages: live.messages.as_ref(),
        });
        Some(live)
    }
}

/// Returns the ports with their rates since `earlier`.
pub(super) fn live_ports(
    now: &[PortStatus],
    earlier: &[PortStatus],
    seconds: f64,
) -> Vec<LivePort> {
    let key = |port: &PortStatus| (port.network.clone(), port.vm.clone());
    let earlier: HashMap<_, _> = earlier.iter().map(|port| (key(port), port)).collect();
    let live = |port| LivePort::new(port, earlier.get(&key(port)).copied(), seconds);
    now.iter().map(live).collect()
}

/// Returns the daemon as the observer knows it.
fn daemon(api: &ApiState) -> Option<Daemon> {
    let vms = api.ports.iter().filter(|port| port.kind == Kind::Vm);
    Some(Daemon {
        pid: api.pid?,
        ports: vms.map(reading).collect(),
        sent: sent(api),
    })
}

fn reading(status: &PortStatus) -> Port {
    Port {
        traffic: status.traffic(),
        network: status.network.clone(),
        vm: status.vm.clone(),
        socket: status.socket.clone(),
    }
}

/// Returns what each VM sent to each other one, by every channel.
fn sent(api: &ApiState) -> Vec<Sent> {
    let ports = api.ports.iter().flat_map(|port| {
        let all = port.sent_to.iter();
        all.map(|to| of_channel(Channel::Switch, &port.network, &port.vm, to))
    });
    let groups = api.direct.iter().flat_map(|group| {
        let members = group.members.iter();
        members.flat_map(|member| {
            let all = member.sent_to.iter();
            all.map(|to| of_channel(Channel::Direct, &group.name, &member.vm, to))
        })
    });
    let members = api.messages.iter().flat_map(|plane| &plane.members);
    let messages = members.flat_map(|member| {
        let all = member.sent_to.iter();
        all.map(|to| of_channel(Channel::Message, "", &member.name, to))
    });
    ports.chain(groups).chain(messages).collect()
}

fn of_channel(channel: Channel, network: &str, from: &str, to: &SentTo) -> Sent {
    Sent {
        channel,
        network: network.to_owned(),
        from: from.to_owned(),
        to: to.vm.clone(),
        frames: to.frames,
        bytes: to.bytes,
    }
}
