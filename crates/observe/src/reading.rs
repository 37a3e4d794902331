//! What was read at one moment: totals only. Rates come from two of these ([`crate::rates`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cgroup::State;
use crate::counters::Totals;
use crate::energy;
use crate::host::CpuTime;
use crate::role::Role;
use crate::traffic::Traffic;

/// A process, told from a later one with its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    /// Its process id.
    pub pid: u32,
    /// When it started, in ticks since boot.
    pub start: u64,
}

/// Everything read at one moment.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When.
    pub at: Instant,
    /// The VMs.
    pub vms: BTreeMap<Id, Vm>,
    /// Vicinity's processes that belong to the daemon asked.
    pub planes: BTreeMap<Id, Plane>,
    /// The ports of that daemon's networks that lead to VMs.
    pub ports: Vec<Port>,
    /// Who sent to whom on them.
    pub sent: Vec<Sent>,
    /// Whether there is such a daemon.
    pub daemon: Option<u32>,
    /// Switches between VMs since the reading before, or why nothing is known of them.
    pub switches: Result<Switches, String>,
    /// The host.
    pub host: Host,
}

/// A VM's totals.
#[derive(Clone, Debug)]
pub struct Vm {
    /// When this VM was read.
    pub at: Instant,
    /// Its name; the process id where it has none.
    pub name: String,
    /// Its threads, by their ids; kernel threads that work for it are among them.
    pub threads: BTreeMap<u32, Thread>,
    /// Paths of its character devices' sockets.
    pub sockets: Vec<String>,
    /// Its taps' totals, by name.
    pub taps: BTreeMap<String, Traffic>,
    /// Host memory it takes.
    pub memory: Option<Memory>,
    /// Its control group: path, version, state.
    pub group: Option<(String, u8, State)>,
    /// Nanoseconds KVM polled for it.
    pub polled_ns: Option<u64>,
}

/// A thread's totals.
#[derive(Clone, Debug)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it does, for a VM's thread.
    pub role: Role,
    /// What the scheduler counted.
    pub totals: Totals,
}

/// A process of Vicinity.
#[derive(Clone, Debug)]
pub struct Plane {
    /// When it was read.
    pub at: Instant,
    /// The network it serves with all its threads; `None` for the supervisor.
    pub network: Option<String>,
    /// Its threads, by their ids.
    pub threads: BTreeMap<u32, Thread>,
}

/// A set of threads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ThreadSet {
    /// A VM's virtual CPUs.
    Guest(Id),
    /// The other threads that work for it alone.
    Backend(Id),
    /// The workers of a network of Vicinity, which work for many.
    Network(String),
}

/// Switches between VMs. The kernel counts no totals of these: they are rates already.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Switches {
    /// How often, each second, a thread of one set was followed on its CPU by one of another, with
    /// nothing in between.
    pub rates: BTreeMap<(ThreadSet, ThreadSet), f64>,
    /// The part of the time that was watched ([`Seen::watched`](crate::switches::Seen::watched)).
    pub watched: f64,
}

/// A VM's port on a network of Vicinity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The network.
    pub network: String,
    /// The VM, as Vicinity calls it.
    pub vm: String,
    /// Its vhost-user socket.
    pub socket: Option<String>,
    /// Its totals.
    pub traffic: Traffic,
}

/// What one port sent to another; frames for all ports are in none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The network.
    pub network: String,
    /// The VM that sent, or the uplink's tap.
    pub from: String,
    /// The VM it was for, or the uplink's tap.
    pub to: String,
    /// Frames.
    pub frames: u64,
    /// Bytes.
    pub bytes: u64,
}

/// How a VM's host memory was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Pages shared with other processes (a back-end, say) are divided among them.
    Pss,
    /// Shared pages are counted in full.
    Rss,
}

/// Host memory a VM's process takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Bytes.
    pub bytes: u64,
    /// How shared pages were counted.
    pub kind: MemoryKind,
}

/// The host's totals.
#[derive(Clone, Debug)]
pub struct Host {
    /// CPUs.
    pub cpus: usize,
    /// All CPUs together.
    pub time: Option<CpuTime>,
    /// Percent of the last ten seconds in which a task waited for a CPU.
    pub pressure: Option<f64>,
    /// Bytes of memory: all, and available.
    pub memory: Option<(u64, u64)>,
    /// Energy counters.
    pub energy: Option<energy::Reading>,
    /// CPU time the observer's own process has used.
    pub own: Duration,
}
