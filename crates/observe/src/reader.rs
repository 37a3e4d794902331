//! Reads all counters of the host, the VMs and Vicinity at one time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::between;
use crate::command_line::{Kind, Machine};
use crate::energy::{Meter, POWERCAP};
use crate::finder::Finder;
use crate::host::{self, CpuTime};
use crate::kvm;
use crate::reading::{
    Host, Id, Memory, MemoryKind, Plane, Port, Reading, Sent, Switches, Thread, Vm,
};
use crate::role::{self, Role};
use crate::switches::Recorder;
use crate::traffic;

/// The reader does not read the PSS of processes larger than this many bytes, because the kernel walks
/// all pages of a process to compute it.
const PSS_LIMIT: u64 = 4 << 30;
/// The number of readings after which the reader reads one VM's memory again.
const MEMORY_READ_INTERVAL: u32 = 5;

/// Reads the counters, and caches the values that it need not read each time.
#[derive(Debug)]
pub struct Reader {
    root: PathBuf,
    finder: Finder,
    meter: Meter,
    memory: BTreeMap<Id, Memory>,
    /// The VM whose memory was read last.
    turn: Option<Id>,
    readings: u32,
    recorder: Result<Recorder, String>,
}

/// The daemon, with the counters of its networks' ports.
#[derive(Clone, Debug, Default)]
pub struct Daemon {
    /// Its process id.
    pub pid: u32,
    /// Its networks' ports that VMs use.
    pub ports: Vec<Port>,
    /// The traffic from each port to each other port.
    pub sent: Vec<Sent>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new(Path::new("/proc"), Path::new(POWERCAP))
    }
}

impl Reader {
    /// Creates a reader for the `/proc` at `root` and the energy counters at `powercap`.
    #[must_use]
    pub fn new(root: &Path, powercap: &Path) -> Self {
        Self {
            root: root.to_owned(),
            finder: Finder::new(root),
            meter: Meter::find(powercap),
            memory: BTreeMap::new(),
            turn: None,
            readings: 0,
            recorder: Err("not recorded".to_owned()),
        }
    }

    /// Has the kernel record switches between threads from now on.
    pub fn record_switches(&mut self) {
        self.recorder = Recorder::start();
    }

    /// Returns the host's energy counters.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Reads all counters. Reads only those of Vicinity's processes that belong to this daemon.
    pub fn read(&mut self, daemon: Option<Daemon>) -> Reading {
        self.finder.scan();
        let processes: Vec<_> = self
            .finder
            .processes()
            .map(|(pid, process)| (pid, process.identity, process.kind.clone()))
            .collect();
        let at = Instant::now();
        let mut vms = BTreeMap::new();
        let mut planes = BTreeMap::new();
        for (pid, identity, kind) in processes {
            let start = identity.start;
            let id = Id { pid, start };
            let network = match kind {
                Kind::Vm(machine) => {
                    vms.insert(id, self.vm(id, &machine));
                    continue;
                }
                Kind::Supervisor => None,
                Kind::DataPlane { network } => Some(network),
            };
            let owner = match network {
                None => pid,
                Some(_) => identity.parent,
            };
            if daemon.as_ref().is_some_and(|daemon| daemon.pid == owner) {
                planes.insert(id, self.plane(pid, network));
            }
        }
        let switches = self.switches(&vms, &planes);
        self.refresh_memory(&mut vms);
        let pid = daemon.as_ref().map(|daemon| daemon.pid);
        let daemon = daemon.unwrap_or_default();
        Reading {
            at,
            vms,
            planes,
            daemon: pid,
            ports: daemon.ports,
            sent: daemon.sent,
            switches,
            host: self.host(),
        }
    }

    fn vm(&mut self, id: Id, machine: &Machine) -> Vm {
        let pid = id.pid;
        let at = Instant::now();
        let threads = self.threads(pid);
        let proc = self.finder.proc();
        let process = self.finder.processes().find(|(other, _)| *other == pid);
        let (taps, group) = match process {
            Some((_, process)) => (process.taps.as_slice(), process.group.as_ref()),
            None => (&[][..], None),
        };
        let devices = match taps {
            [] => String::new(),
            _ => proc.text(pid, "net/dev").unwrap_or_default(),
        };
        let of = |tap: &String| Some((tap.clone(), traffic::of_tap(&devices, tap)?));
        Vm {
            at,
            name: machine.name.clone().unwrap_or_else(|| pid.to_string()),
            threads,
            sockets: machine.sockets.clone(),
            taps: taps.iter().filter_map(of).collect(),
            memory: None,
            group: group.map(|group| (group.path().to_owned(), group.version(), group.read())),
            polled_ns: kvm::polled_ns(Path::new(kvm::STATISTICS), pid),
        }
    }

    fn plane(&mut self, pid: u32, network: Option<String>) -> Plane {
        Plane {
            at: Instant::now(),
            network,
            threads: self.threads(pid),
        }
    }

    fn threads(&mut self, pid: u32) -> BTreeMap<u32, Thread> {
        let names = self.finder.threads(pid);
        let proc = self.finder.proc();
        let first = names.iter().find(|(id, _)| *id == pid);
        let first = first.map(|(_, name)| name.clone()).unwrap_or_default();
        let nameless = role::nameless(&first, names.iter().map(|(_, name)| name.as_str()));
        let nameless = nameless.map(str::to_owned);
        let mut threads = BTreeMap::new();
        for (id, name) in names {
            // A kernel thread is not in the `task` folder of the VM's process.
            let totals = proc.totals(pid, id).or_else(|| proc.totals(id, id));
            if let Some(totals) = totals {
                let role = Role::of(&name, id == pid, nameless.as_deref());
                threads.insert(id, Thread { name, role, totals });
            }
        }
        threads
    }

    fn switches(
        &mut self,
        vms: &BTreeMap<Id, Vm>,
        planes: &BTreeMap<Id, Plane>,
    ) -> Result<Switches, String> {
        let recorder = self.recorder.as_mut().map_err(|why| why.clone())?;
        Ok(between::sets(&recorder.read(), vms, planes))
    }

    /// Reads the memory of new VMs at once. Reads the memory of one other VM in every [`MEMORY_READ_INTERVAL`]th
    /// reading, in turn.
    fn refresh_memory(&mut self, vms: &mut BTreeMap<Id, Vm>) {
        self.memory.retain(|id, _| vms.contains_key(id));
        self.readings = self.readings.wrapping_add(1);
        if self.readings % MEMORY_READ_INTERVAL == 0 {
            let first = vms.keys().next().copied();
            let after = |turn: Id| vms.keys().copied().find(|id| *id > turn);
            self.turn = self.turn.and_then(after).or(first);
            if let Some(id) = self.turn {
                self.memory.remove(&id);
            }
        }
        for (id, vm) in vms {
            if !self.memory.contains_key(id) {
                let memory = self.memory_of(id.pid);
                self.memory.extend(memory.map(|memory| (*id, memory)));
            }
            vm.memory = self.memory.get(id).copied();
        }
    }

    fn memory_of(&self, pid: u32) -> Option<Memory> {
        let rss = self.finder.proc().rss(pid)?;
        let pss = (rss <= PSS_LIMIT)
            .then(|| self.finder.proc().pss(pid))
            .flatten();
        Some(match pss {
            Some(bytes) => Memory {
                bytes,
                kind: MemoryKind::Pss,
            },
            None => Memory {
                bytes: rss,
                kind: MemoryKind::Rss,
            },
        })
    }

    fn host(&self) -> Host {
        let stat = std::fs::read_to_string(self.root.join("stat")).unwrap_or_default();
        let own = clock_gettime(ClockId::ProcessCPUTime);
        Host {
            cpus: stat.lines().filter(|line| is_cpu(line)).count().max(1),
            time: CpuTime::parse(&stat),
            pressure: host::pressure(&self.root),
            memory: host::memory(&self.root),
            energy: self.meter.read(),
            own: Duration::try_from(own).unwrap_or_default(),
        }
    }
}

/// Returns whether a line of `/proc/stat` is of one CPU (`cpu0 …`), and not the sum of all (`cpu  …`).
fn is_cpu(line: &str) -> bool {
    let rest = line.strip_prefix("cpu");
    rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}
