//! The totals that the observer read at one time. [`crate::rates`] computes rates from two readings.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cgroup::State;
use crate::counters::Totals;
use crate::energy;
use crate::host::CpuTime;
use crate::role::Role;
use crate::traffic::Traffic;

/// The identity of a process. It differs from that of a later process with the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its process id.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub start: u64,
}

/// All totals that the observer read at one time.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The time of the reading.
    pub at: Instant,
    /// The VMs.
    pub vms: BTreeMap<Id, Vm>,
    /// The processes of Vicinity that belong to `daemon`.
    pub planes: BTreeMap<Id, Plane>,
    /// The ports of the daemon's networks that VMs use.
    pub ports: Vec<Port>,
    /// The traffic from each of these ports to each other port.
    pub sent: Vec<Sent>,
    /// The daemon's process id, if there is a daemon.
    pub daemon: Option<u32>,
    /// Switches between VMs since the previous reading, or the reason why the observer has none.
    pub switches: Result<Switches, String>,
    /// The host.
    pub host: Host,
}

/// A VM's totals.
#[derive(Clone, Debug)]
pub struct Vm {
    /// The time when the observer read this VM.
    pub at: Instant,
    /// Its name, or its process id if it has no name.
    pub name: String,
    /// Its threads by their ids, including kernel threads that work for it.
    pub threads: BTreeMap<u32, Thread>,
    /// Paths of its character devices' sockets.
    pub sockets: Vec<String>,
    /// Its taps' totals, by name.
    pub taps: BTreeMap<String, Traffic>,
    /// The host memory that it occupies.
    pub memory: Option<Memory>,
    /// Its control group: path, version, state.
    pub group: Option<(String, u8, State)>,
    /// The nanoseconds for which KVM polled for it.
    pub polled_ns: Option<u64>,
}

/// A thread's totals.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// Its role, if it is a VM's thread.
    pub role: Role,
    /// The scheduler's counters.
    pub totals: Totals,
}

/// A process of Vicinity.
#[derive(Clone, Debug)]
pub struct Plane {
    /// The time when the observer read it.
    pub at: Instant,
    /// The network that all its threads serve, or `None` for the supervisor.
    pub network: Option<String>,
    /// Its threads, by their ids.
    pub threads: BTreeMap<u32, Thread>,
}

/// A set of threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadSet {
    /// A VM's virtual CPUs.
    Guest(Id),
    /// The other threads that work for this VM only.
    Backend(Id),
    /// The workers of a network of Vicinity, which several VMs share.
    Network(String),
}

/// Switches between VMs. These are rates, because the kernel keeps no totals of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Switches {
    /// How often per second a CPU switched from a thread of one set directly to a thread of another
    /// set.
    pub rates: BTreeMap<(ThreadSet, ThreadSet), f64>,
    /// The part of the time that the records cover ([`SwitchRates::watched`](crate::switches::SwitchRates::watched)).
    pub watched: f64,
}

/// A VM's port on a network of Vicinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The network.
    pub network: String,
    /// The VM's name in Vicinity.
    pub vm: String,
    /// Its vhost-user socket.
    pub socket: Option<String>,
    /// Its totals.
    pub traffic: Traffic,
}

/// The channel of Vicinity between two VMs.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum Channel {
    /// Ethernet frames through the switch.
    #[default]
    Switch,
    /// Packets of the direct channel, through shared memory.
    Direct,
    /// Messages of the message plane that the host relays.
    Message,
}

/// The frames and bytes that one port sent to another. No pair includes frames for all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The channel.
    pub channel: Channel,
    /// The network; the trust group of the direct channel; empty for messages.
    pub network: String,
    /// The VM that sent the frames, or the uplink's tap.
    pub from: String,
    /// The VM to which the frames were sent, or the uplink's tap.
    pub to: String,
    /// Frames, packets or messages.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How the kernel counted a VM's host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Pages that the process shares with others (for example with a back-end) are divided among them.
    Pss,
    /// Shared pages are counted in full.
    Rss,
}

/// The host memory that a VM's process occupies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes.
    pub bytes: u64,
    /// How the kernel counted shared pages.
    pub kind: MemoryKind,
}

/// The totals of the host.
#[derive(Clone, Debug)]
pub struct Host {
    /// The number of CPUs.
    pub cpus: usize,
    /// The CPU time of all CPUs together.
    pub time: Option<CpuTime>,
    /// The percentage of the last ten seconds in which some task waited for a CPU.
    pub pressure: Option<f64>,
    /// The bytes of memory: total, and available.
    pub memory: Option<(u64, u64)>,
    /// Energy counters.
    pub energy: Option<energy::Reading>,
    /// The CPU time that the observer's own process has used.
    pub own: Duration,
}
