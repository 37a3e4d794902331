//! What is told: rates between two readings. This is the form of `--json`.

use serde::Serialize;

use crate::energy::Provenance;
use crate::reading::Memory;
use crate::role::Role;

/// Everything about one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Length of the interval.
    pub seconds: f64,
    /// The host.
    pub host: Host,
    /// The daemon, if there is one.
    pub vicinity: Option<Vicinity>,
    /// The VMs that were there all the time, by name.
    pub vms: Vec<Vm>,
    /// Who sent to whom over Vicinity's networks, the busiest first.
    pub pairs: Vec<Pair>,
    /// Which VM ran straight after which, where the kernel tells.
    pub switches: Option<Switches>,
    /// What cannot be known here, and what would help.
    pub cannot_read: Vec<String>,
}

/// The host.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// CPUs.
    pub cpus: usize,
    /// CPUs busy, on average.
    pub busy: Option<f64>,
    /// Of these, in interrupts: network work that is charged to no VM.
    pub interrupts: Option<f64>,
    /// CPUs that a hypervisor below took.
    pub stolen: Option<f64>,
    /// Percent of the last ten seconds in which a task waited for a CPU.
    pub pressure: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory that programs could have.
    pub memory_available: Option<u64>,
    /// Power: with counters the whole host's, modelled that of the busy CPUs.
    pub watts: Option<f64>,
    /// Where all figures in watts come from.
    pub energy: Provenance,
    /// CPUs this observer used itself.
    pub own: f64,
}

/// The daemon and its workers.
#[derive(Clone, Debug, Serialize)]
pub struct Vicinity {
    /// Its process id.
    pub pid: u32,
    /// The supervisor: charged to no VM.
    pub supervisor: Activity,
    /// Its networks.
    pub networks: Vec<Network>,
}

/// The workers of a network.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// The network's name.
    pub name: String,
    /// All its workers together.
    pub workers: Activity,
    /// CPUs of them that no VM is charged for.
    pub uncharged: f64,
}

/// What one port sent to another, each second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The network.
    pub network: String,
    /// The VM that sent.
    pub from: String,
    /// The VM it was for, or the uplink's tap.
    pub to: String,
    /// Frames.
    pub frames: f64,
    /// Bytes.
    pub bytes: f64,
}

/// Switches between VMs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Switches {
    /// The part of the interval that was watched: the first, as much as there was room for. Rates
    /// are of that part.
    pub watched: f64,
    /// The pairs of sets, the most frequent first.
    pub pairs: Vec<Switched>,
}

/// How often one set of threads ran straight after another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Switched {
    /// Who left the CPU.
    pub from: Party,
    /// Who got it.
    pub to: Party,
    /// Times a second.
    pub per_second: f64,
}

/// A set of threads by its name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "set", content = "name", rename_all = "kebab-case")]
pub enum Party {
    /// The guest of this VM.
    Guest(String),
    /// The backend of this VM, without the workers it shares.
    Backend(String),
    /// The workers of this network.
    Network(String),
}

/// Switches between VMs that gave each set of a VM the CPU, a second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Between {
    /// To its guest, from another VM, from its own backend, or from a network's workers.
    pub guest: f64,
    /// To its backend, from another VM, from its own guest, or from a network's workers.
    pub backend: f64,
}

/// A VM.
#[derive(Clone, Debug, Serialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// QEMU's process id.
    pub pid: u32,
    /// `KVM` or `TCG`, where the threads' names tell.
    pub accelerator: Option<String>,
    /// Its vCPUs' threads.
    pub guest: Activity,
    /// Everything else that works for it: QEMU's own threads, vhost workers, and its share of
    /// Vicinity's workers.
    pub backend: Activity,
    /// CPUs of the backend that are its share of Vicinity's workers.
    pub backend_in_vicinity: f64,
    /// Switches between VMs; the workers' are in [`Report::switches`] only.
    pub switches_between: Option<Between>,
    /// CPUs KVM polled, with or without success; taken off the guest's use, added to its block.
    pub halt_poll: Option<f64>,
    /// What its NICs carried; `None` when its NICs are not known.
    pub traffic: Option<Traffic>,
    /// Host memory.
    pub memory: Option<Memory>,
    /// Power charged for guest and backend.
    pub watts: Option<f64>,
    /// Its CPU control group.
    pub cgroup: Option<Group>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// What is not exact about this VM.
    pub notes: Vec<String>,
}

/// What a set of threads did. Use, wait and block are sums over the threads: each thread adds
/// 1 in all. A thread shared with other VMs adds only its share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Activity {
    /// Threads.
    pub threads: f64,
    /// On a CPU.
    pub r#use: f64,
    /// Runnable, but not running.
    pub wait: f64,
    /// Neither.
    pub block: f64,
    /// Times put on a CPU, each second.
    pub executions_per_second: f64,
    /// Times taken off a CPU, each second.
    pub switches_per_second: f64,
    /// CPU time of an execution, in microseconds.
    pub cpu_per_execution_us: Option<f64>,
    /// Wait before an execution, in microseconds.
    pub wait_per_execution_us: Option<f64>,
}

/// What a VM's NICs carried, each second, from the guest's side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traffic {
    /// Frames sent.
    pub tx_frames: f64,
    /// Bytes sent.
    pub tx_bytes: f64,
    /// Frames received.
    pub rx_frames: f64,
    /// Bytes received.
    pub rx_bytes: f64,
    /// Frames both ways: descriptor chains, XenMon's "page exchanges" in what they count.
    pub descriptors: f64,
    /// Bytes both ways, in pages of 4096.
    pub pages: f64,
    /// Descriptors for each execution of the backend.
    pub descriptors_per_execution: Option<f64>,
}

/// A VM's control group.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Its path.
    pub path: String,
    /// 1 or 2.
    pub version: u8,
    /// Weight among its siblings; the default is 1024 in version 1, 100 in version 2.
    pub weight: Option<u64>,
    /// CPUs' worth of time it was held back by its cap.
    pub throttled: Option<f64>,
}

/// A thread of a VM.
#[derive(Clone, Debug, Serialize)]
pub struct Thread {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// What it did.
    #[serde(flatten)]
    pub activity: Activity,
}
