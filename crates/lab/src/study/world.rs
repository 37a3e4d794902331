//! What the experiments run on: VMs that are all joined by every channel, and a second host.
//!
//! Booted once for all sweeps. A VM that an experiment does not want is paused: its virtual CPUs
//! do not run and it takes no frames; only its memory is there. That is the lab's "no VM".

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use super::knob::Journal;
use super::remote::Remote;
use super::threads::{self, Set};
use crate::accel::{self, Accel};
use crate::bridge::Bridge;
use crate::channel::{self, Channel, Setting, Switch, Uplink};
use crate::error::{Error, Result};
use crate::image::{Image, Recipe};
use crate::progress::Progress;
use crate::vm::{Spec, Vm};
use crate::{host, interrupt, scope, workload};

/// Longest boot: emulated guests on a busy machine.
pub(super) const BOOT: Duration = Duration::from_secs(180);

/// How often frames are sent again when some were lost on their way.
const FILLS: u32 = 8;

/// Where things are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The `vicinity` program.
    pub vicinity: PathBuf,
    /// Folder of guest images.
    pub cache: PathBuf,
    /// Folder of logs.
    pub logs: PathBuf,
}

/// Numbers of residents with a switch of their own; the others have a handful.
const RESIDENTS: [u32; 2] = [10_000, 100_000];

/// A switch whose residency table is filled, for VM 1 only.
#[derive(Debug)]
struct Filled {
    residents: u32,
    network: u8,
    switch: Switch,
    site: Bridge,
}

/// VMs, channels and the second host. Fields are dropped in this order.
#[derive(Debug)]
pub struct World {
    /// The VMs; the first two talk, serve and are watched.
    pub vms: Vec<Vm>,
    channels: Vec<Box<dyn Channel>>,
    filled: Vec<Filled>,
    /// The second host.
    pub remote: Remote,
    _site: Bridge,
    /// How the VMs run.
    pub accel: Accel,
    /// Their image.
    pub image: Image,
    paused: Vec<bool>,
    guests: Vec<Vec<i32>>,
    /// The most each server can serve alone, by `server/file`, requests a second.
    pub solo: BTreeMap<String, f64>,
    /// Where things are.
    pub place: Place,
    names: Vec<String>,
}

/// A switch whose uplink leads to the second host, as its network of this number; and the bridge
/// in between.
fn reachable(setting: &Setting<'_>, remote: &Remote, network: u8) -> Result<(Switch, Bridge)> {
    let site = Bridge::new(setting.accel)?;
    let uplink = Uplink {
        namespace: site.namespace(),
        tap: "vic0",
    };
    let switch = Switch::start_with(setting, Some(&uplink))?;
    site.join(uplink.tap)?;
    remote.join(site.namespace(), network)?;
    Ok((switch, site))
}

impl World {
    /// Boot `count` VMs.
    ///
    /// # Errors
    /// Anything that keeps them from running.
    pub fn start(place: &Place, count: usize, progress: &Progress) -> Result<Self> {
        for name in scope::sweep()? {
            progress.step(&format!(
                "removed {name}, left behind by a run that crashed"
            ));
        }
        progress.step("guest image with web servers (kept for the next time)");
        let image = recipe().build(&place.cache)?;
        let accel = accel::detect(&image.kernel)?;
        // The last one is booted by the experiment that kills it.
        let mut names: Vec<String> = (1..=count).map(|number| format!("vm{number}")).collect();
        names.push("victim".to_owned());
        let vms: Vec<&str> = names.iter().map(String::as_str).collect();
        let setting = Setting {
            vms: &vms,
            accel,
            vicinity: &place.vicinity,
            logs: &place.logs,
        };
        let mut remote = Remote::new(&place.vicinity)?;
        let bridge = Bridge::new(accel)?;
        remote.join(bridge.namespace(), 1)?;
        let (switch, site) = reachable(&setting, &remote, 2)?;
        // Residents stay for minutes, so each number of them has a switch of its own.
        let mut filled = Vec::new();
        for (residents, network) in RESIDENTS.into_iter().zip(3..) {
            let setting = Setting {
                vms: vms.get(..1).unwrap_or_default(),
                ..setting.clone()
            };
            let (switch, site) = reachable(&setting, &remote, network)?;
            filled.push(Filled {
                residents,
                network,
                switch,
                site,
            });
        }
        remote.serve()?;
        let channels: Vec<Box<dyn Channel>> = vec![Box::new(bridge), Box::new(switch)];
        progress.step(&format!("booting {count} VMs under {}", accel.name()));
        let mut world = Self {
            vms: Vec::new(),
            channels,
            remote,
            filled,
            _site: site,
            accel,
            image,
            paused: vec![false; count],
            guests: Vec::new(),
            solo: BTreeMap::new(),
            place: place.clone(),
            names,
        };
        for number in 1..=count {
            let vm = world.boot(number)?;
            world.vms.push(vm);
        }
        for vm in &world.vms {
            vm.wait_ready(BOOT)?;
            serve(vm)?;
        }
        world.guests = world.vms.iter().map(cpus_of).collect::<Result<_>>()?;
        progress.step("all are up, with their servers");
        Ok(world)
    }

    fn boot(&self, number: usize) -> Result<Vm> {
        let name = self.names.get(number - 1).map_or("vm", String::as_str);
        let mut spec = Spec::new(name, &self.place.logs);
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        for (channel, network) in self.channels.iter().zip(1..) {
            spec.nics
                .push(channel::nic(channel.as_ref(), network, name, number)?);
        }
        for one in self.filled.iter().filter(|_| number == 1) {
            let nic = channel::nic(&one.switch, one.network, name, number)?;
            spec.nics.push(nic);
        }
        Vm::boot(&self.image, spec)
    }

    /// One more VM, on all channels, that may be killed.
    ///
    /// # Errors
    /// It does not come up.
    pub fn victim(&self) -> Result<Vm> {
        let vm = self.boot(self.vms.len() + 1)?;
        vm.wait_ready(BOOT)?;
        Ok(vm)
    }

    /// The network whose switch has so many residents, all but a few behind its uplink: frames
    /// from as many addresses are sent to it if they have not been, or were forgotten.
    ///
    /// # Errors
    /// There is no such switch, or it does not learn them.
    pub fn among(&self, residents: u32) -> Result<u8> {
        let found = self.filled.iter().find(|one| one.residents == residents);
        let none = || Error::Host(format!("no switch is made for {residents} residents"));
        let one = found.ok_or_else(none)?;
        one.fill(&self.place.vicinity)?;
        Ok(one.network)
    }

    /// VM number `number`, from one.
    ///
    /// # Errors
    /// There are fewer.
    pub fn vm(&self, number: usize) -> Result<&Vm> {
        let missing = || Error::Host(format!("this run has no VM {number}"));
        self.vms.get(number.wrapping_sub(1)).ok_or_else(missing)
    }

    /// The number of the network that a channel carries.
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

    /// One line for each channel.
    #[must_use]
    pub fn channels(&self) -> Vec<String> {
        self.channels
            .iter()
            .map(|channel| format!("{}: {}", channel.name(), channel.description()))
            .collect()
    }

    /// Let exactly the first `count` VMs run.
    ///
    /// # Errors
    /// QEMU refuses.
    pub fn only(&mut self, count: usize) -> Result<()> {
        for (place, (vm, paused)) in self.vms.iter().zip(&mut self.paused).enumerate() {
            let wanted = place >= count;
            if *paused != wanted {
                let command = if wanted { "stop" } else { "cont" };
                vm.qmp()?.execute(command, &json!({}))?;
                *paused = wanted;
            }
        }
        interrupt::check()
    }

    /// All of them still run.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.vms.iter().all(|vm| vm.is_running().unwrap_or(false))
    }

    /// The threads of a VM's virtual CPUs.
    #[must_use]
    pub fn guest(&self, number: usize) -> &[i32] {
        self.guests
            .get(number.wrapping_sub(1))
            .map_or(&[], Vec::as_slice)
    }

    /// The backend: every thread of QEMU that is no virtual CPU, Vicinity's, vhost's.
    #[must_use]
    pub fn backend(&self) -> Vec<i32> {
        let mut threads: Vec<i32> = self
            .vms
            .iter()
            .flat_map(|vm| threads::of_process(vm.id()))
            .collect();
        threads.retain(|id| !self.guests.iter().flatten().any(|cpu| cpu == id));
        threads.extend(
            self.vms
                .iter()
                .flat_map(|vm| threads::vhost_workers(vm.id())),
        );
        let filled = self.filled.iter().filter_map(|one| one.switch.id());
        threads.extend(filled.flat_map(threads::of_process));
        threads.extend(
            self.channels
                .iter()
                .filter_map(|channel| channel.process())
                .flat_map(threads::of_process),
        );
        threads
    }

    /// The sets to watch when the first `busy` of `running` VMs work.
    #[must_use]
    pub fn sets(&self, busy: usize, running: usize) -> Vec<Set> {
        let join = |from: usize, to: usize| {
            (from..=to)
                .flat_map(|n| self.guest(n).to_vec())
                .collect::<Vec<i32>>()
        };
        let mut sets = vec![Set {
            name: "vm1",
            threads: join(1, 1),
            members: 1,
        }];
        if busy > 1 {
            sets.push(Set {
                name: "vm2",
                threads: join(2, 2),
                members: 1,
            });
        }
        sets.push(Set {
            name: "guests",
            threads: join(1, busy),
            members: 1,
        });
        sets.push(Set {
            name: "idle",
            threads: join(busy + 1, running),
            members: running.saturating_sub(busy),
        });
        sets.push(Set {
            name: "backend",
            threads: self.backend(),
            members: 1,
        });
        sets
    }

    /// Pin the virtual CPUs of VM 1 and 2: to CPU 0 both, or to CPU 0 and 1.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn pin(&self, placement: &str) -> Result<Journal> {
        let second = if placement == "shared" { 0 } else { 1 };
        let mut journal = Journal::begin()?;
        for (vm, cpu) in [(1, 0), (2, second)] {
            for thread in self.guest(vm) {
                super::knob::pin(&mut journal, *thread, &[cpu])?;
            }
        }
        Ok(journal)
    }
}

impl Filled {
    fn fill(&self, vicinity: &Path) -> Result<()> {
        let ask = |words: &[&str]| {
            let mut command = host::command("ip");
            command.args(["netns", "exec", self.site.namespace()]);
            command.arg(vicinity).arg("--runtime-dir");
            command.arg(self.switch.folder()).args(words);
            host::run(command)
        };
        let known = || -> Result<u64> {
            let text = ask(&["network", "list", "--json"])?;
            let list: Value = serde_json::from_str(&text).unwrap_or_default();
            let count = list.pointer("/0/worker/residents").and_then(Value::as_u64);
            count.ok_or_else(|| Error::unreadable("`vicinity network list --json`", &text))
        };
        // All but a few: the VMs' own addresses are in the table, and a full table learns none.
        let wanted = u64::from(self.residents).saturating_sub(100);
        for _ in 0..FILLS {
            if known()? >= wanted {
                return Ok(());
            }
            ask(&["lab", "residents", &format!("--count={wanted}")])?;
            // The figures are reported once a second.
            interrupt::sleep(Duration::from_millis(1200))?;
        }
        let (wanted, known) = (self.residents, known()?);
        Err(Error::Host(format!(
            "the switch has {known} residents, not {wanted}"
        )))
    }
}

/// The lab's guest with two web servers.
#[must_use]
pub(super) fn recipe() -> Recipe {
    Recipe::default()
        .package("apache2-bin")
        .package("nginx")
        .package("libgcc-s1")
}

/// Threads of a VM's virtual CPUs, as QEMU knows them.
fn cpus_of(vm: &Vm) -> Result<Vec<i32>> {
    let answer = vm.qmp()?.execute("query-cpus-fast", &json!({}))?;
    let cpus = answer.as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = cpus
        .iter()
        .filter_map(|cpu| cpu.get("thread-id").and_then(Value::as_i64));
    Ok(ids.filter_map(|id| i32::try_from(id).ok()).collect())
}

/// Start every server in a guest: streams, requests, web.
fn serve(vm: &Vm) -> Result<()> {
    workload::serve(vm)?;
    vm.check(include_str!("servers.sh"), Duration::from_secs(60))
        .map(drop)
}

/// Folder of a guest image, for the manifest.
#[must_use]
pub fn image_name(image: &Image) -> String {
    let folder = image.kernel.parent().and_then(Path::file_name);
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}
