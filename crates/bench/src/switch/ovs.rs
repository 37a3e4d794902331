//! Runs Open vSwitch with DPDK as a device under test. The instance is private: its database and sockets are separate
//! from those of an Open vSwitch that the machine runs.

use std::path::{Path, PathBuf};
use std::process::Command;

use vm_harness::error::{Error, Result};
use vm_harness::host::{self, run};

use super::device_under_test::{CycleCounters, Sockets, Switch, SwitchOptions};
use crate::cpus::{GENERATOR_CPU, SWITCH_CPU};
use crate::parse::number_after;
use crate::process::{Process, first, pause};

/// Path of the daemon in Debian's `openvswitch-switch-dpdk`. `ovs-vswitchd` in the search path
/// may be the build without DPDK.
pub(super) const DAEMON: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Hugepages for its packet buffers, in MB.
pub(super) const MEMORY: u64 = 512;

/// A running instance. The daemon is declared before its database, so it stops first.
pub(super) struct Ovs {
    daemon: Process,
    _database: Process,
    folder: PathBuf,
    ports: u16,
}

impl Ovs {
    /// Starts database and daemon, and makes a bridge with vhost-user ports.
    pub(super) fn start(folder: &Path, shape: SwitchOptions) -> Result<Self> {
        let database = start_database(folder)?;
        configure(folder, shape.gso)?;
        let daemon = start_daemon(folder)?;
        let ovs = Self {
            daemon,
            _database: database,
            folder: folder.to_owned(),
            ports: shape.ports,
        };
        ovs.add_bridge()?;
        Ok(ovs)
    }

    fn add_bridge(&self) -> Result<()> {
        let bridge = [
            "add-br",
            "br0",
            "--",
            "set",
            "bridge",
            "br0",
            "datapath_type=netdev",
        ];
        let mut words = bridge.map(str::to_owned).to_vec();
        for socket in self.sockets().paths() {
            let name = socket.file_name().unwrap_or_default().to_string_lossy();
            let path = format!("options:vhost-server-path={}", socket.display());
            let kind = "type=dpdkvhostuserclient";
            words.extend(["--", "add-port", "br0", &name].map(str::to_owned));
            words.extend(["--", "set", "interface", &name, kind, &path].map(str::to_owned));
        }
        set(&self.folder, &words)
    }
}

impl Switch for Ovs {
    fn sockets(&self) -> Sockets {
        // The type dpdkvhostuser, with which Open vSwitch listens, is deprecated and sometimes refuses connections on
        // a busy machine.
        let socket = |number| self.folder.join(format!("p{number}"));
        Sockets::GeneratorListens((0..self.ports).map(socket).collect())
    }

    fn id(&self) -> u32 {
        self.daemon.id()
    }

    fn counters(&self) -> Result<CycleCounters> {
        let mut command = tool("ovs-appctl", &self.folder);
        command
            .arg("-T10")
            .arg("-t")
            .arg(self.folder.join("daemon.ctl"));
        command.args(["dpif-netdev/pmd-stats-show", "-pmd"]);
        command.arg(SWITCH_CPU.to_string());
        parse_counters(&run(command)?)
    }

    fn pause(&self, resting: bool) -> Result<()> {
        // The forwarding thread busy-polls, so the process is stopped by a signal.
        pause(self.daemon.id(), resting)
    }
}

/// Returns a command for a program of Open vSwitch, see [`use_private_folders`].
fn tool(program: &str, folder: &Path) -> Command {
    let mut command = host::command(program);
    use_private_folders(&mut command, folder);
    command
}

/// Keeps every file of Open vSwitch inside `folder`; without these variables it would use the
/// places of the machine's own instance.
fn use_private_folders(command: &mut Command, folder: &Path) {
    for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
        command.env(variable, folder);
    }
}

fn start_database(folder: &Path) -> Result<Process> {
    let file = folder.join("conf.db");
    let mut create = tool("ovsdb-tool", folder);
    create.arg("create").arg(&file).arg(SCHEMA);
    run(create)?;
    let socket = folder.join("db.sock");
    let mut command = tool("ovsdb-server", folder);
    command.arg(&file);
    command.arg(format!("--remote=punix:{}", socket.display()));
    command.arg(format!("--unixctl={}/db.ctl", folder.display()));
    let mut database = Process::start("ovsdb-server", folder, command)?;
    database.until("database socket", |_| Ok(socket.exists()))?;
    Ok(database)
}

fn configure(folder: &Path, gso: bool) -> Result<()> {
    // --no-pci: DPDK must not use the network cards of the machine.
    let extra = "--no-pci --in-memory --file-prefix=vicinity-bench-ovs";
    let settings = [
        ("dpdk-init", "true".to_owned()),
        ("dpdk-extra", extra.to_owned()),
        ("dpdk-socket-mem", MEMORY.to_string()),
        ("dpdk-socket-limit", MEMORY.to_string()),
        ("dpdk-lcore-mask", format!("{:#x}", 1 << GENERATOR_CPU)),
        ("pmd-cpu-mask", format!("{:#x}", 1 << SWITCH_CPU)),
        ("vhost-sock-dir", ".".to_owned()),
        ("userspace-tso-enable", gso.to_string()),
    ];
    let settings = settings.map(|(key, value)| format!("other_config:{key}=\"{value}\""));
    // An error means that the daemon does not listen yet.
    let words = ["--no-wait", "--", "init", "--", "set", "Open_vSwitch", "."];
    let mut words = words.map(str::to_owned).to_vec();
    words.extend(settings);
    set(folder, &words)
}

fn start_daemon(folder: &Path) -> Result<Process> {
    let socket = folder.join("daemon.ctl");
    // The daemon is not pinned as a whole: its masks put the forwarding thread on the switch's CPU.
    // The daemon makes taps for its bridge and its datapath and does not remove them. Therefore it runs in a network
    // namespace of its own, which the kernel removes with the taps when the daemon ends.
    let mut command = first(folder, "unshare");
    command.args(["--net", "--", DAEMON]);
    use_private_folders(&mut command, folder);
    command.arg(format!("unix:{}/db.sock", folder.display()));
    command.arg(format!("--unixctl={}", socket.display()));
    let mut daemon = Process::start("ovs-dpdk", folder, command)?;
    daemon.until("control socket", |_| Ok(socket.exists()))?;
    Ok(daemon)
}

fn set(folder: &Path, words: &[String]) -> Result<()> {
    let mut command = tool("ovs-vsctl", folder);
    command.arg(format!("--db=unix:{}/db.sock", folder.display()));
    command.arg("--timeout=15").args(words);
    run(command).map(drop)
}

/// Reads the answer to `dpif-netdev/pmd-stats-show` for one forwarding thread.
fn parse_counters(text: &str) -> Result<CycleCounters> {
    let field = |name| {
        number_after(text, name)
            .ok_or_else(|| Error::unreadable("the counters of Open vSwitch", text))
    };
    let busy = field("processing cycles:")?;
    Ok(CycleCounters {
        busy,
        all: busy + field("idle cycles:")?,
        frames: field("packets received:")?,
    })
}

/// Versions of Open vSwitch and of its DPDK, as it prints them.
pub(super) fn version() -> Result<String> {
    let mut command = host::command(DAEMON);
    command.arg("--version");
    let text = run(command)?;
    let version = text.lines().map(str::trim).collect::<Vec<_>>().join(", ");
    Ok(version.replace("ovs-vswitchd-dpdk ", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "\
pmd thread numa_id 0 core_id 1:
  packets received: 25843488
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  emc hits: 25843136
  avg. packets per output batch: 32.00
  idle cycles: 15711069947 (70.87%)
  processing cycles: 6457537502 (29.13%)
  avg cycles per packet: 857.80 (22168607449/25843488)
  avg processing cycles per packet: 249.87 (6457537502/25843488)
";

    #[test]
    fn totals_of_the_forwarding_thread_are_read() {
        let meter = parse_counters(ANSWER).unwrap();
        assert_eq!(meter.frames, 25_843_488);
        assert_eq!(meter.busy, 6_457_537_502);
        assert_eq!(meter.all, 22_168_607_449);
    }

    #[test]
    fn an_answer_without_cycles_is_an_error_that_shows_it() {
        let error = parse_counters("main thread:\n  packets received: 0\n").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("counters of Open vSwitch"), "{text}");
        assert!(text.contains("main thread"), "{text}");
    }
}
