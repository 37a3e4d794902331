//! Starts the daemon of VM 1's space. VM 2 has a space that competes for slots. Clients on the second
//! host reach VM 1's space through the same link as the VMs' own servers on the switch.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use vm_harness::bridge::Bridge;
use vm_harness::channel::{self, Setting};
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::interrupt;
use vm_harness::scope::RunFolder;

/// Last byte of the host's address on the second host's network.
const NUMBER: u8 = 251;

/// Port at which clients fetch files of the space.
const PORT: u16 = 8090;

/// The VM with the measured space, and the VM with the competing one.
const VM: &str = "vm1";
const OTHER_VM: &str = "vm2";

/// Slots for both spaces together. The highest of the measured rates of jobs needs more than half of them.
const BUDGET: u32 = 64;

/// Longest time until the daemon has started.
const START: Duration = Duration::from_secs(20);

/// A daemon with a space.
#[derive(Debug)]
pub(super) struct SpaceDaemon {
    // Fields are dropped in this order: the process first, then its folder.
    process: Option<ChildProcess>,
    run: RunFolder,
    vicinity: std::path::PathBuf,
    pub(super) at: SocketAddr,
}

impl SpaceDaemon {
    /// Starts the daemon with an address on the bridge `site`, which carries the network of this number.
    pub(super) fn new(setting: &Setting<'_>, site: &Bridge, network: u8) -> Result<Self> {
        let address = channel::address(network, NUMBER);
        let namespace = site.namespace();
        let mut ip = host::command("ip");
        ip.args(["-n", namespace, "addr", "add", &format!("{address}/24")]);
        ip.args(["dev", "br0"]);
        host::run(ip)?;
        let text = format!("{address}:{PORT}");
        let at = text
            .parse()
            .map_err(|_| Error::unreadable("an address", &text))?;
        let run = RunFolder::new()?;
        let config = run.path().join("config.toml");
        let text = format!(
            "runtime-dir = \"{}\"\nspace-budget = {BUDGET}\n\n[[space]]\nvm = \"{VM}\"\nlisten = \"{at}\"\n\
             allow = [\"{}/24\"]\n[[space]]\nvm = \"{OTHER_VM}\"\n",
            run.path().display(),
            channel::address(network, 0)
        );
        fs::write(&config, text).context(|| format!("write {}", config.display()))?;
        let log = setting.logs.join("space.log");
        let stderr = File::create(&log).context(|| format!("make {}", log.display()))?;
        let mut command = host::command("ip");
        command.args(["netns", "exec", namespace]);
        command.arg(setting.vicinity).arg("serve");
        command.arg("--config").arg(&config);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let mut process = ChildProcess::spawn(command)?;
        let socket = run.path().join("space").join(format!("{VM}.sock"));
        interrupt::poll("the start of `vicinity serve` with a space", START, || {
            process.must_run(&log)?;
            Ok(socket.exists().then_some(()))
        })?;
        Ok(Self {
            process: Some(process),
            run,
            vicinity: setting.vicinity.to_owned(),
            at,
        })
    }

    /// Returns QEMU's options for a VM; none for a VM without a space.
    pub(super) fn qemu_args(&self, vm: &str) -> Result<Vec<String>> {
        if ![VM, OTHER_VM].contains(&vm) {
            return Ok(Vec::new());
        }
        let text = self.run_command(&["qemu-args", vm, "--json"])?;
        serde_json::from_str(&text)
            .map_err(|_| Error::unreadable("`vicinity space qemu-args`", &text))
    }

    /// Returns the daemon's status of the space.
    pub(super) fn show(&self) -> Result<Value> {
        let text = self.run_command(&["show", VM])?;
        serde_json::from_str(&text).map_err(|_| Error::unreadable("`vicinity space show`", &text))
    }

    /// Runs `vicinity space` with these arguments.
    pub(super) fn run_command(&self, words: &[&str]) -> Result<String> {
        let mut command: Command = host::command(&self.vicinity);
        command.arg("--runtime-dir").arg(self.run.path());
        command.arg("space").args(words);
        host::run(command)
    }

    /// Process id of the daemon; the space's process is its child.
    pub(super) fn process(&self) -> Option<u32> {
        self.process.as_ref().map(ChildProcess::id)
    }
}

impl Drop for SpaceDaemon {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.stop();
        }
    }
}
