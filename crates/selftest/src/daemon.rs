//! The daemon that serves the VMs: `vicinity serve`, as a user runs it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::interrupt;

/// The network of the VMs.
pub(crate) const NETWORK: &str = "lan";

/// What the daemon serves: a network, the message plane, a trust group of the direct channel, and a space.
const CONFIG: &str = r#"
space-budget = 64

[[network]]
name = "lan"
[[network.port]]
vm = "one"
[[network.port]]
vm = "two"
[[network.port]]
vm = "three"
[[network.port]]
vm = "mover"
[[network.port]]
vm = "arrival"

[[message.member]]
name = "one"
group = "g"
[[message.member]]
name = "two"
group = "g"
[[message.member]]
name = "three"
group = "g"

[[direct.group]]
name = "g"
members = ["one", "mover", "vfio"]

[[space]]
vm = "two"
listen = "127.0.0.1:0"
allow = ["127.0.0.1"]
"#;

/// Longest time that the daemon may take to start.
const START: Duration = Duration::from_secs(30);

/// A running daemon. Dropping the value ends it.
#[derive(Debug)]
pub(crate) struct Daemon {
    process: Option<ChildProcess>,
    vicinity: PathBuf,
    run: PathBuf,
}

impl Daemon {
    /// Starts the daemon with its sockets in a folder of `folder`, and waits until it answers.
    pub(crate) fn start(vicinity: &Path, folder: &Path, logs: &Path) -> Result<Self> {
        let config = folder.join("vicinity.toml");
        fs::write(&config, CONFIG).context(|| format!("write {}", config.display()))?;
        fs::create_dir_all(logs).context(|| format!("make {}", logs.display()))?;
        let log = logs.join("serve.log");
        let file = File::create(&log).context(|| format!("make {}", log.display()))?;
        let run = folder.join("run");
        let mut command = host::command(vicinity);
        command.args(["serve", "--runtime-dir"]).arg(&run);
        command.arg("--config").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(file);
        let mut daemon = Self {
            process: Some(ChildProcess::spawn(command)?),
            vicinity: vicinity.to_owned(),
            run,
        };
        interrupt::poll("the start of `vicinity serve`", START, || {
            if let Some(process) = &mut daemon.process {
                process.must_run(&log)?;
            }
            Ok(daemon.json(&["network", "list", "--json"]).ok())
        })?;
        Ok(daemon)
    }

    /// Runs a command of the program for this daemon and returns what it prints.
    pub(crate) fn text(&self, words: &[&str]) -> Result<String> {
        let mut command = host::command(&self.vicinity);
        command.args(words).arg("--runtime-dir").arg(&self.run);
        host::run(command)
    }

    /// Runs a command that prints JSON.
    pub(crate) fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.text(words)?;
        serde_json::from_str(&text).map_err(|_| Error::unreadable("the daemon's answer", &text))
    }

    /// Runs a command that prints QEMU's options.
    pub(crate) fn options(&self, words: &[&str]) -> Result<Vec<String>> {
        let value = self.json(&[words, &["--json"]].concat())?;
        serde_json::from_value(value.clone())
            .map_err(|_| Error::unreadable("QEMU's options", &value.to_string()))
    }

    /// Returns the status of a VM's port.
    pub(crate) fn port(&self, vm: &str) -> Result<Value> {
        let ports = self.json(&["port", "list", "--json"])?;
        let mut all = ports.as_array().into_iter().flatten();
        let port = all.find(|port| text(port, "/vm") == vm);
        port.cloned()
            .ok_or_else(|| Error::Host(format!("the daemon has no port for VM {vm}")))
    }

    /// Waits until a VM's port has this state.
    pub(crate) fn until_state(&self, vm: &str, state: &str, limit: Duration) -> Result<()> {
        let what = format!("the state `{state}` of the port of VM {vm}");
        interrupt::poll(&what, limit, || {
            Ok((text(&self.port(vm)?, "/state") == state).then_some(()))
        })
    }

    /// Returns how many frames a VM has received from the switch.
    pub(crate) fn received(&self, vm: &str) -> Result<u64> {
        Ok(number(&self.port(vm)?, "/counters/rx_frames"))
    }

    /// Waits until a VM has received `more` frames, and returns how long that took.
    pub(crate) fn until_received(&self, vm: &str, more: u64, limit: Duration) -> Result<Duration> {
        let begin = std::time::Instant::now();
        let before = self.received(vm)?;
        let what = format!("{more} frames for VM {vm}");
        interrupt::poll(&what, limit, || {
            Ok((self.received(vm)? >= before + more).then_some(()))
        })?;
        Ok(begin.elapsed())
    }

    /// Returns how often the data plane of the network was started again.
    pub(crate) fn restarts(&self) -> Result<u64> {
        let networks = self.json(&["network", "list", "--json"])?;
        let mut all = networks.as_array().into_iter().flatten();
        let network = all.find(|network| text(network, "/name") == NETWORK);
        Ok(network.map_or(0, |network| number(network, "/restarts")))
    }

    /// Kills the data plane of the network.
    pub(crate) fn kill_data_plane(&self) -> Result<()> {
        let name = format!("net-{NETWORK}");
        let id = self.process.as_ref().map_or(0, ChildProcess::id);
        let mut children = host::family(id).into_iter().skip(1);
        let named = |id: &u32| {
            let path = format!("/proc/{id}/comm");
            fs::read_to_string(path).is_ok_and(|comm| comm.trim() == name)
        };
        let process = children.find(named).and_then(|id| i32::try_from(id).ok());
        let process = process.and_then(Pid::from_raw);
        let process =
            process.ok_or_else(|| Error::Host(format!("the daemon has no process {name}")))?;
        kill_process(process, Signal::KILL).context(|| format!("kill {name}"))
    }

    /// Returns the state of a member of the trust group, and the daemon's reason for it.
    pub(crate) fn direct_state(&self, vm: &str) -> Result<(String, String)> {
        let groups = self.json(&["direct", "list", "--json"])?;
        let members = groups.pointer("/0/members").and_then(Value::as_array);
        let member = members
            .into_iter()
            .flatten()
            .find(|member| text(member, "/vm") == vm);
        let of = |key| member.map(|member| text(member, key)).unwrap_or_default();
        Ok((of("/state"), of("/reason")))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}

/// Returns a text in a JSON value; empty if there is none.
pub(crate) fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// Returns a number in a JSON value; 0 if there is none.
pub(crate) fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}
