//! The direct channel between VMs: `vicinity direct serve` on the host, which plugs the devices for
//! views and windows into running VMs, and the kernel module in each guest.
//!
//! A VM that will join is booted with [`Channel::qemu_args`]. These options are the only difference until
//! [`Channel::join`], so the channel does not affect measurements before that call.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::channel::{self, Channel, Setting};
use crate::error::{Context, Error, Result};
use crate::guest_module::GuestModule;
use crate::host::{self, ChildProcess};
use crate::scope::RunFolder;
use crate::vm::{Link, Vm};
use crate::{cpu, interrupt};

pub use crate::guest_module::missing;

/// Path of the module in a guest.
const MODULE: &str = "/run/vicinity_direct.ko";

/// Bytes of the module in one command to a guest: Linux limits an argument of a command to 128 KiB.
const PIECE: usize = 48 * 1024;

/// Longest time until `vicinity direct serve` has started, and until a guest has a device or a peer.
const LIMIT: Duration = Duration::from_secs(60);

/// A group of VMs that may read each other's memory.
#[derive(Debug)]
pub struct Direct {
    // Fields are dropped in this order: the process first, then its folder.
    serving: Option<ChildProcess>,
    run: RunFolder,
    vicinity: PathBuf,
    cache: PathBuf,
    logs: PathBuf,
    vms: Vec<String>,
    /// The module, once it is built.
    module: Vec<u8>,
}

impl Direct {
    /// Prepares the folder for the group of these VMs; nothing runs yet.
    ///
    /// # Errors
    /// The process is not root.
    pub fn new(setting: &Setting<'_>) -> Result<Self> {
        let run = RunFolder::new()?;
        let folder = run.path().join("direct");
        fs::create_dir(&folder).context(|| format!("make {}", folder.display()))?;
        Ok(Self {
            serving: None,
            run,
            vicinity: setting.vicinity.to_owned(),
            cache: setting.cache.to_owned(),
            logs: setting.logs.to_owned(),
            vms: setting.vms.iter().map(|vm| (*vm).to_owned()).collect(),
            module: Vec::new(),
        })
    }

    /// Builds the module for the guests' kernel and starts `vicinity direct serve`, on the first call.
    fn open(&mut self, release: &str) -> Result<()> {
        if self.serving.is_some() {
            return Ok(());
        }
        let file = GuestModule::Direct.build(release, &self.cache)?;
        self.module = fs::read(&file).context(|| format!("read {}", file.display()))?;
        let log = self.logs.join("direct.log");
        let stderr = File::create(&log).context(|| format!("make {}", log.display()))?;
        let mut command = self.vicinity();
        command.args(["direct", "serve"]).args(&self.vms);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let mut serving = ChildProcess::spawn(command)?;
        let sockets: Vec<PathBuf> = self
            .vms
            .iter()
            .map(|vm| self.run.path().join("direct").join(format!("{vm}.sock")))
            .collect();
        interrupt::poll("the start of `vicinity direct serve`", LIMIT, || {
            serving.must_run(&log)?;
            Ok(sockets.iter().all(|socket| socket.exists()).then_some(()))
        })?;
        self.serving = Some(serving);
        Ok(())
    }

    /// Loads the module in the VM of this number and gives its device an address. The channel must be open.
    ///
    /// # Errors
    /// The guest does not load the module, or no device appears in the guest.
    pub fn load(&self, vm: &Vm, network: u8, number: u8) -> Result<()> {
        vm.check(&format!("rm -f {MODULE}"), LIMIT)?;
        for piece in self.module.chunks(PIECE) {
            let text = STANDARD.encode(piece);
            vm.check(&format!("echo {text} | base64 --decode >>{MODULE}"), LIMIT)?;
        }
        let device = "/sys/class/net/direct0";
        let address = channel::address(network, number);
        vm.check(
            &format!("insmod {MODULE} && until test -e {device}; do sleep 0.1; done; ip addr add {address}/24 dev direct0 && ip link set direct0 up"),
            LIMIT,
        )
        .map(drop)
    }

    /// Waits until a guest exchanges packets with `count` others.
    ///
    /// # Errors
    /// The guest has fewer peers after 60 s.
    pub fn wait_for_peers(&self, vm: &Vm, count: usize) -> Result<()> {
        let known = format!("ethtool -S direct0 | grep -q ' peers: {count}$'");
        vm.check(&format!("until {known}; do sleep 0.1; done"), LIMIT)
            .map(drop)
    }

    fn vicinity(&self) -> std::process::Command {
        let mut command = host::command(&self.vicinity);
        command.arg("--runtime-dir").arg(self.run.path());
        command
    }
}

impl Channel for Direct {
    fn name(&self) -> &'static str {
        "direct"
    }

    fn description(&self) -> String {
        "VMs see each other's memory and take packets from there".to_owned()
    }

    fn link(&self, _vm: &str) -> Result<Option<Link>> {
        Ok(None)
    }

    fn qemu_args(&self, vm: &str) -> Result<Vec<String>> {
        if !self.vms.iter().any(|known| known == vm) {
            return Ok(Vec::new());
        }
        let mut command = self.vicinity();
        command.args(["direct", "qemu-args", vm]);
        let text = host::run(command)?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    }

    fn join(&mut self, vms: &[Vm], network: u8, release: &str) -> Result<()> {
        self.open(release)?;
        for (number, vm) in (1..).zip(vms) {
            self.load(vm, network, number)?;
        }
        let others = vms.len().saturating_sub(1);
        vms.iter()
            .try_for_each(|vm| self.wait_for_peers(vm, others))
    }

    fn cpu_time(&self) -> Result<Duration> {
        self.process().map_or(Ok(Duration::ZERO), cpu::of_process)
    }

    fn process(&self) -> Option<u32> {
        self.serving.as_ref().map(ChildProcess::id)
    }
}

/// Returns the numbers of packets that a guest has sent, and of doorbells that it has rung.
///
/// # Errors
/// The guest has no such device.
pub fn counters(vm: &Vm) -> Result<(f64, f64)> {
    let text = vm.check(
        "cat /sys/class/net/direct0/statistics/tx_packets && ethtool -S direct0 | grep ' doorbells: '",
        LIMIT,
    )?;
    let words = text.lines().filter_map(|line| line.rsplit(' ').next());
    let mut numbers = words.filter_map(|word| word.parse().ok());
    numbers
        .next()
        .zip(numbers.next())
        .ok_or_else(|| Error::unreadable("the direct device's counters", &text))
}
