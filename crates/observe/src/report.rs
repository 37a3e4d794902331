//! The report: rates between two readings. `--json` prints these types, and a recording has them.

use serde::{Deserialize, Serialize};

use crate::energy::Provenance;
use crate::reading::{Channel, Memory};
use crate::role::Role;

/// The report of one interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// The host.
    pub host: Host,
    /// The daemon, if there is one.
    pub vicinity: Option<Vicinity>,
    /// The VMs that ran during the whole interval, in the order of their names.
    pub vms: Vec<Vm>,
    /// The traffic from each port to each other port of Vicinity's networks, the busiest pair first.
    pub pairs: Vec<Pair>,
    /// Switches of a CPU directly from one VM to another, if the kernel records them.
    pub switches: Option<Switches>,
    /// The figures that are unavailable on this host, and what the user can do about each.
    pub cannot_read: Vec<String>,
}

/// The host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// CPUs.
    pub cpus: usize,
    /// The average number of busy CPUs.
    pub busy: Option<f64>,
    /// Of these, CPUs in interrupts: network work that the observer charges to no VM.
    pub interrupts: Option<f64>,
    /// CPUs that a hypervisor below this host used for other VMs.
    pub stolen: Option<f64>,
    /// Percent of the last ten seconds in which a task waited for a CPU.
    pub pressure: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Bytes of memory that are available to programs.
    pub memory_available: Option<u64>,
    /// Power in watts: measured, that of the whole host; modelled, that of the busy CPUs.
    pub watts: Option<f64>,
    /// Whether all figures in watts are measured or modelled.
    pub energy: Provenance,
    /// CPUs that the observer itself used.
    pub own: f64,
}

/// The daemon and its workers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vicinity {
    /// Its process id.
    pub pid: u32,
    /// The supervisor's activity, which the observer charges to no VM.
    pub supervisor: Activity,
    /// Its networks.
    pub networks: Vec<Network>,
}

/// The workers of a network.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Network {
    /// The network's name.
    pub name: String,
    /// The activity of all its workers together.
    pub workers: Activity,
    /// CPUs of the workers that the observer charges to no VM.
    pub uncharged: f64,
}

/// What one port sent to another, per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// The channel.
    #[serde(default)]
    pub channel: Channel,
    /// The network; the trust group of the direct channel; empty for messages.
    pub network: String,
    /// The VM that sent the frames.
    pub from: String,
    /// The VM to which the frames were sent, or the uplink's tap.
    pub to: String,
    /// Frames, packets or messages.
    pub frames: f64,
    /// Bytes.
    pub bytes: f64,
}

/// Switches between VMs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Switches {
    /// The part of the interval that the records cover: the first part, as long as the kernel had room
    /// for records. Rates are of that part.
    pub watched: f64,
    /// The pairs of sets, the most frequent first.
    pub pairs: Vec<SwitchPair>,
}

/// How often one set of threads ran directly after another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwitchPair {
    /// The set that left the CPU.
    pub from: ThreadSetName,
    /// The set that ran next.
    pub to: ThreadSetName,
    /// Switches per second.
    pub per_second: f64,
}

/// A set of threads by its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "set", content = "name", rename_all = "kebab-case")]
pub enum ThreadSetName {
    /// The guest of this VM.
    Guest(String),
    /// The backend of this VM, without the workers that it shares with other VMs.
    Backend(String),
    /// The workers of this network.
    Network(String),
}

/// Switches per second from other sets of threads to each set of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct VmSwitches {
    /// Switches to its guest, from another VM, from its own backend, or from a network's workers.
    pub guest: f64,
    /// Switches to its backend, from another VM, from its own guest, or from a network's workers.
    pub backend: f64,
}

/// A VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// QEMU's process id.
    pub pid: u32,
    /// `KVM` or `TCG`, if the threads' names contain it.
    pub accelerator: Option<String>,
    /// The activity of its vCPUs' threads.
    pub guest: Activity,
    /// The activity of all other threads that work for it: QEMU's own threads, vhost workers, and its
    /// share of Vicinity's workers.
    pub backend: Activity,
    /// CPUs of the backend that are its share of Vicinity's workers.
    pub backend_in_vicinity: f64,
    /// Switches to its guest and its backend. [`Report::switches`] also has those to the workers.
    pub switches_between: Option<VmSwitches>,
    /// CPUs on which KVM polled for work, with or without success. The observer subtracts this time
    /// from the guest's use, and adds it to the guest's block.
    pub halt_poll: Option<f64>,
    /// The traffic of its NICs, or `None` if the observer does not know its NICs.
    pub traffic: Option<Traffic>,
    /// Host memory.
    pub memory: Option<Memory>,
    /// Power in watts that the observer charges for guest and backend.
    pub watts: Option<f64>,
    /// Its CPU control group.
    pub cgroup: Option<Group>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Notes on figures of this VM that are not exact.
    pub notes: Vec<String>,
}

/// The activity of a set of threads. Use, wait and block are sums over the threads: each thread adds 1
/// to the three together. A thread that the VM shares with other VMs adds only the VM's share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Threads.
    pub threads: f64,
    /// The average number of threads on a CPU.
    pub r#use: f64,
    /// The average number of threads that were runnable, but not running.
    pub wait: f64,
    /// The average number of threads that were neither running nor runnable.
    pub block: f64,
    /// How often per second the kernel put a thread on a CPU.
    pub executions_per_second: f64,
    /// How often per second a thread left a CPU.
    pub switches_per_second: f64,
    /// The average CPU time of an execution, in microseconds.
    pub cpu_per_execution_us: Option<f64>,
    /// The average wait before an execution, in microseconds.
    pub wait_per_execution_us: Option<f64>,
}

/// The traffic of a VM's NICs per second, from the guest's side.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traffic {
    /// Frames sent.
    pub tx_frames: f64,
    /// Bytes sent.
    pub tx_bytes: f64,
    /// Frames received.
    pub rx_frames: f64,
    /// Bytes received.
    pub rx_bytes: f64,
    /// Frames in both directions. Each is one descriptor chain, and corresponds to a "page exchange" of
    /// XenMon.
    pub descriptors: f64,
    /// Bytes in both directions, in pages of 4096 bytes.
    pub pages: f64,
    /// Descriptors per execution of the backend.
    pub descriptors_per_execution: Option<f64>,
}

/// A VM's control group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// Its path.
    pub path: String,
    /// The version of control groups: 1 or 2.
    pub version: u8,
    /// The group's weight among its siblings. The default is 1024 in version 1, and 100 in version 2.
    pub weight: Option<u64>,
    /// The seconds per second for which the group's cap throttled it.
    pub throttled: Option<f64>,
}

/// A thread of a VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its activity.
    #[serde(flatten)]
    pub activity: Activity,
}
