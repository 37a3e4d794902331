//! The testbed of the experiments: VMs, channels that each join all of them, and a second host.
//!
//! The testbed boots once for all sweeps. It pauses a VM that an experiment does not use: the virtual CPUs
//! do not run and the VM takes no frames; only its memory is used. A paused VM stands for "no VM" in the experiments.

mod filled;
mod joined;
mod sets;
mod spaced;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::second_host::SecondHost;
use vm_harness::accel::{self, Accel};
use vm_harness::bridge::Bridge;
use vm_harness::channel::{self, Channel, Setting};
use vm_harness::error::{Error, Result};
use vm_harness::image::{Image, Recipe};
use vm_harness::instructions::Counter;
use vm_harness::progress::Progress;
use vm_harness::vm::{Spec, Vm};
use vm_harness::{interrupt, scope, workload};

use filled::{Filled, ModeratedSwitch, reachable};
use joined::Joined;
use spaced::SpaceDaemon;

/// Longest time that a boot may take: that of emulated guests on a busy machine.
pub(super) const BOOT: Duration = Duration::from_secs(180);

/// Kernel argument of the guests: the kernel counts, at each tick, the place where it was interrupted.
const KERNEL_ARGUMENT: &str = "profile=4";

/// Names of the VMs that an experiment boots if it needs them. Their numbers follow those of the other VMs.
const EXTRA_VMS: [&str; 4] = ["victim", "wide", "new1", "new2"];

/// Paths of the program and of folders.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The `vicinity` program.
    pub vicinity: PathBuf,
    /// Folder of guest images.
    pub cache: PathBuf,
    /// Folder of logs.
    pub logs: PathBuf,
}

/// VMs, channels and the second host. Fields are dropped in this order.
#[derive(Debug)]
pub struct Testbed {
    /// The VMs. The first two exchange traffic, serve and are measured.
    pub vms: Vec<Vm>,
    channels: Vec<Box<dyn Channel>>,
    /// The runtime folder of the switch that joins all VMs.
    switch: PathBuf,
    filled: Vec<Filled>,
    moderated: Vec<ModeratedSwitch>,
    direct: Joined,
    spaced: SpaceDaemon,
    /// Counts the VMs' instructions, if the sweep needs that and QEMU emulates them.
    pub counter: Option<Counter>,
    /// The second host.
    pub remote: SecondHost,
    _site: Bridge,
    /// The accelerator of the VMs.
    pub accel: Accel,
    /// Their image.
    pub image: Image,
    paused: Vec<bool>,
    guests: Vec<Vec<u32>>,
    /// A VM with two virtual CPUs, and their threads, while an experiment needs it.
    two_cpu: Option<(Vm, Vec<u32>)>,
    /// The maximum rate of each server alone, by `server/file`, in requests a second.
    pub solo: BTreeMap<String, f64>,
    /// Paths of the program and of folders.
    pub place: Paths,
    names: Vec<String>,
}

impl Testbed {
    /// Boots `count` VMs. With `instructions`, their instructions are counted if QEMU emulates them, which slows them
    /// down.
    ///
    /// # Errors
    /// A VM, a channel or the second host does not start.
    pub fn start(
        place: &Paths,
        count: usize,
        instructions: bool,
        progress: &Progress,
    ) -> Result<Self> {
        scope::sweep_and_log(progress)?;
        progress.step("guest image with web servers (kept for the next time)");
        let image = recipe().build(&place.cache)?;
        let accel = accel::detect(&image.kernel)?;
        let mut names: Vec<String> = (1..=count).map(|number| format!("vm{number}")).collect();
        names.extend(EXTRA_VMS.map(str::to_owned));
        let vms: Vec<&str> = names.iter().map(String::as_str).collect();
        let setting = Setting {
            vms: &vms,
            accel,
            vicinity: &place.vicinity,
            cache: &place.cache,
            logs: &place.logs,
        };
        let mut remote = SecondHost::new(&place.vicinity)?;
        let bridge = Bridge::new(accel)?;
        remote.join(bridge.namespace(), 1)?;
        let (switch, site) = reachable(&setting, &remote, 2)?;
        let filled = filled::all(&setting, &remote, 3)?;
        let moderated = filled::moderated_switches(&setting, 5)?;
        let direct = Joined::new(&setting, 8)?;
        let spaced = SpaceDaemon::new(&setting, &site, 2)?;
        let counted = instructions && accel == Accel::Tcg;
        let counter = counted.then(Counter::build).transpose()?;
        remote.serve()?;
        let folder = switch.folder().to_owned();
        let channels: Vec<Box<dyn Channel>> = vec![Box::new(bridge), Box::new(switch)];
        progress.step(&format!("booting {count} VMs under {}", accel.name()));
        let mut testbed = Self {
            vms: Vec::new(),
            channels,
            remote,
            switch: folder,
            filled,
            moderated,
            direct,
            spaced,
            counter,
            _site: site,
            accel,
            image,
            paused: vec![false; count],
            guests: Vec::new(),
            two_cpu: None,
            solo: BTreeMap::new(),
            place: place.clone(),
            names,
        };
        for number in 1..=count {
            let vm = testbed.boot(number, 1)?;
            testbed.vms.push(vm);
        }
        for vm in &testbed.vms {
            vm.wait_ready(BOOT)?;
            serve(vm)?;
        }
        testbed.guests = testbed.vms.iter().map(cpus_of).collect::<Result<_>>()?;
        progress.step("all are up, with their servers");
        Ok(testbed)
    }

    fn boot(&self, number: usize, vcpus: u32) -> Result<Vm> {
        let name = self.names.get(number - 1).map_or("vm", String::as_str);
        let mut spec = Spec::new(name, &self.place.logs);
        spec.vcpus = vcpus;
        spec.kernel_args = vec![KERNEL_ARGUMENT.to_owned()];
        spec.qemu_args = self.direct.direct.qemu_args(name)?;
        spec.qemu_args.extend(self.spaced.qemu_args(name)?);
        let counter = self.counter.iter();
        spec.qemu_args
            .extend(counter.flat_map(|counter| counter.qemu_args(name)));
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        for (channel, network) in self.channels.iter().zip(1..) {
            spec.nics
                .extend(channel::nic(channel.as_ref(), network, name, number)?);
        }
        for one in self.filled.iter().filter(|_| number == 1) {
            let nic = channel::nic(&one.switch, one.network, name, number)?;
            spec.nics.extend(nic);
        }
        for one in self.moderated.iter().filter(|_| number <= 2) {
            let nic = channel::nic(&one.switch, one.network, name, number)?;
            spec.nics.extend(nic);
        }
        Vm::boot(&self.image, spec)
    }

    /// Boots another VM on all channels, which the caller may kill. The VM joins the direct channel if `channel` is
    /// its name.
    ///
    /// # Errors
    /// The VM does not boot.
    pub fn boot_killable_vm(&self, channel: &str) -> Result<Vm> {
        let number = self.vms.len() + 1;
        let vm = self.boot(number, 1)?;
        vm.wait_ready(BOOT)?;
        if channel == joined::CHANNEL {
            self.direct.add(&vm, number)?;
        }
        Ok(vm)
    }

    /// Starts one of the VMs whose start is measured, and returns it and its number at once.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn boot_another(&self, place: usize) -> Result<(Vm, u8)> {
        let number = self.vms.len() + 3 + place;
        let vm = self.boot(number, 1)?;
        Ok((vm, u8::try_from(number).unwrap_or(u8::MAX)))
    }

    /// Pauses all VMs but VM 2, and boots a VM with two virtual CPUs on all channels.
    ///
    /// # Errors
    /// The VM does not boot, or QEMU refuses.
    pub fn boot_two_cpu_vm(&mut self) -> Result<()> {
        self.set_running(|number| number == 2)?;
        if self.two_cpu.is_none() {
            let vm = self.boot(self.vms.len() + 2, 2)?;
            vm.wait_ready(BOOT)?;
            let cpus = cpus_of(&vm)?;
            self.two_cpu = Some((vm, cpus));
        }
        Ok(())
    }

    /// Returns the VM with two virtual CPUs.
    ///
    /// # Errors
    /// There is no such VM; see [`Testbed::boot_two_cpu_vm`].
    pub fn two_cpu_vm(&self) -> Result<&Vm> {
        let missing = || Error::Host("no VM has two virtual CPUs".to_owned());
        self.two_cpu.as_ref().map(|(vm, _)| vm).ok_or_else(missing)
    }

    /// Returns the network whose switch has this number of FDB entries (1 stands for a handful: the VMs and the second
    /// host), and its folder. In the larger tables nearly all addresses are behind the uplink: the testbed sends
    /// frames from these addresses to the switch if it has not learned them, or if they have aged out.
    ///
    /// # Errors
    /// There is no such switch, or it does not learn the addresses.
    pub fn with_fdb_entries(&self, fdb_entries: u32) -> Result<(u8, &Path)> {
        if fdb_entries == 1 {
            return Ok((self.network("switch")?, &self.switch));
        }
        let found = self
            .filled
            .iter()
            .find(|one| one.fdb_entries == fdb_entries);
        let none = || {
            Error::Host(format!(
                "the testbed has no switch with {fdb_entries} FDB entries"
            ))
        };
        let one = found.ok_or_else(none)?;
        one.fill(&self.place.vicinity)?;
        Ok((one.network, one.switch.folder()))
    }

    /// Returns the network whose switch has this value of `moderation-us`.
    ///
    /// # Errors
    /// There is no such switch.
    pub fn network_with_moderation(&self, micros: &str) -> Result<u8> {
        let found = self.moderated.iter().find(|one| one.micros == micros);
        let none = || {
            Error::Host(format!(
                "the testbed has no switch with moderation-us = {micros}"
            ))
        };
        found.map(|one| one.network).ok_or_else(none)
    }

    /// Returns the address at which clients fetch files of VM 1's space.
    #[must_use]
    pub fn space(&self) -> SocketAddr {
        self.spaced.at
    }

    /// Returns the daemon's status of VM 1's space.
    ///
    /// # Errors
    /// The daemon has ended.
    pub fn show_space(&self) -> Result<Value> {
        self.spaced.show()
    }

    /// Sets the size of VM 1's space by `vicinity space set`.
    ///
    /// # Errors
    /// The daemon refuses.
    pub fn size_space(&self, slots: &str) -> Result<()> {
        self.spaced.run_command(&["set", "vm1", slots]).map(drop)
    }

    /// Returns VM number `number`, from one.
    ///
    /// # Errors
    /// There are fewer VMs.
    pub fn vm(&self, number: usize) -> Result<&Vm> {
        let missing = || Error::Host(format!("this run has no VM {number}"));
        self.vms.get(number.wrapping_sub(1)).ok_or_else(missing)
    }

    /// Returns the number of the network between VM 1 and VM 2 that a channel carries. The first call for the direct
    /// channel opens it; VM 1 and 2 must run.
    ///
    /// # Errors
    /// There is no such channel, or it cannot be opened.
    pub fn between(&mut self, channel: &str) -> Result<u8> {
        match channel {
            joined::CHANNEL => {
                let pair = self.vms.get(..2).unwrap_or_default();
                self.direct.open(pair, &self.image.manifest.kernel_release)
            }
            _ => self.network(channel),
        }
    }

    /// Returns the number of the network that the bridge or the switch carries.
    ///
    /// # Errors
    /// There is no such channel.
    pub fn network(&self, channel: &str) -> Result<u8> {
        let found = self
            .channels
            .iter()
            .zip(1..)
            .find(|(known, _)| known.name() == channel);
        found
            .map(|(_, number)| number)
            .ok_or_else(|| Error::Host(format!("no channel is called {channel}")))
    }

    /// Returns one line for each channel.
    #[must_use]
    pub fn channels(&self) -> Vec<String> {
        let direct: &dyn Channel = &self.direct.direct;
        let all = self.channels.iter().map(AsRef::as_ref).chain([direct]);
        all.map(|channel| format!("{}: {}", channel.name(), channel.description()))
            .collect()
    }

    /// Pauses all VMs but the first `count`, which run.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn run_only(&mut self, count: usize) -> Result<()> {
        self.two_cpu = None;
        self.set_running(|number| number <= count)
    }

    fn set_running(&mut self, wanted: impl Fn(usize) -> bool) -> Result<()> {
        for ((vm, paused), number) in self.vms.iter().zip(&mut self.paused).zip(1..) {
            let pause = !wanted(number);
            if *paused != pause {
                let command = if pause { "stop" } else { "cont" };
                vm.qmp()?.execute(command, &json!({}))?;
                *paused = pause;
            }
        }
        interrupt::check()
    }

    /// Whether all VMs still run.
    #[must_use]
    pub fn all_vms_run(&self) -> bool {
        let wide = self.two_cpu.iter().map(|(vm, _)| vm);
        let mut all = self.vms.iter().chain(wide);
        all.all(|vm| vm.is_running().unwrap_or(false))
    }

    /// Returns the name of a VM that does not answer. A killed VM may take a moment to end, and must not take part in
    /// a measurement before its end.
    #[must_use]
    pub fn unresponsive_vm(&self) -> Option<&str> {
        let answers = |vm: &Vm| {
            let asked = vm.qmp()?.execute("query-status", &json!({}));
            asked.and_then(|_status| vm.is_running())
        };
        let wide = self.two_cpu.iter().map(|(vm, _)| vm);
        let mut all = self.vms.iter().chain(wide);
        let unresponsive = all.find(|vm| !answers(vm).unwrap_or(false));
        unresponsive.map(Vm::name)
    }

    /// Returns the threads of a VM's virtual CPUs.
    #[must_use]
    pub fn guest(&self, number: usize) -> &[u32] {
        self.guests
            .get(number.wrapping_sub(1))
            .map_or(&[], Vec::as_slice)
    }
}

/// Returns the standard guest with two web servers and the programs of the jobs.
#[must_use]
pub(super) fn recipe() -> Recipe {
    Recipe::default()
        .package("apache2-bin")
        .package("nginx")
        .package("gzip")
        .package("mawk")
        .module("virtiofs")
        .package("libgcc-s1")
}

/// Threads of a VM's virtual CPUs, as QEMU reports them.
fn cpus_of(vm: &Vm) -> Result<Vec<u32>> {
    let answer = vm.qmp()?.execute("query-cpus-fast", &json!({}))?;
    let cpus = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = cpus
        .iter()
        .filter_map(|cpu| cpu.get("thread-id").and_then(Value::as_u64));
    Ok(ids.filter_map(|id| u32::try_from(id).ok()).collect())
}

/// Starts every server in a guest: those of streams and requests, and the web servers.
pub(super) fn serve(vm: &Vm) -> Result<()> {
    workload::serve(vm)?;
    vm.check(include_str!("servers.sh"), Duration::from_secs(60))
        .map(drop)
}

/// Returns the name of a guest image's folder, for the manifest.
#[must_use]
pub fn image_name(image: &Image) -> String {
    let folder = image.kernel.parent().and_then(Path::file_name);
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
