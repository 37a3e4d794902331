//! The subject of the checks: the host, a daemon, and VMs that stay from one check to the next.
//!
//! A check asks for the VMs that it uses, and the testbed boots those that do not run. After a failed check the testbed
//! ends everything, so that a check never fails because of an earlier one.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vm_harness::accel::{self, Accel};
use vm_harness::bridge::Bridge;
use vm_harness::channel::{self, Channel};
use vm_harness::error::{Context, Error, Result};
use vm_harness::guest_module::{self, GuestModule};
use vm_harness::image::{Image, Recipe};
use vm_harness::machine;
use vm_harness::scope::RunFolder;
use vm_harness::vm::{Nic, SMP_MAXCPUS_2, Spec, Vm};

use crate::check::{Requirement, Subject};
use crate::daemon::Daemon;
use crate::guest::Guest;
use crate::host::{self, Firmware};
use crate::options::Options;

/// Longest time that a boot may take: that of an emulated guest on a busy host.
const BOOT: Duration = Duration::from_secs(140);

/// Networks of the VMs: the number in their addresses.
pub(crate) const BRIDGE: u8 = 1;
pub(crate) const SWITCH: u8 = 2;

/// Memory that stays free beside the VMs, MiB.
const RESERVE_MIB: u64 = 256;

/// The state of the guest image.
#[derive(Debug)]
enum Prepared {
    Not,
    Ready(Box<Image>),
    Failed(String),
}

/// The host with everything that the self-test started. Fields are dropped in this order.
#[derive(Debug)]
pub(crate) struct Testbed {
    vms: [Option<Vm>; 4],
    daemon: Option<Daemon>,
    bridge: Option<Bridge>,
    run: Option<RunFolder>,
    image: Prepared,
    accel: Option<Accel>,
    has_modules: bool,
    pub(crate) options: Options,
}

impl Testbed {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            vms: [const { None }; 4],
            daemon: None,
            bridge: None,
            run: None,
            image: Prepared::Not,
            accel: None,
            has_modules: false,
            options: options.clone(),
        }
    }

    /// Returns the accelerator, once it is known.
    pub(crate) const fn accel(&self) -> Option<Accel> {
        self.accel
    }

    /// Returns the release of the guests' kernel, once an image is built.
    pub(crate) fn guest_kernel(&self) -> Option<String> {
        match &self.image {
            Prepared::Ready(image) => Some(image.manifest.kernel_release.clone()),
            _ => None,
        }
    }

    /// Whether the guests have the kernel modules of Vicinity.
    pub(crate) const fn has_modules(&self) -> bool {
        self.has_modules
    }

    /// Builds the guest image, or takes it from the cache, and finds the accelerator.
    ///
    /// # Errors
    /// As for [`Recipe::build`].
    pub(crate) fn prepare(&mut self) -> Result<()> {
        if matches!(self.image, Prepared::Ready(_)) {
            return Ok(());
        }
        let options = &self.options;
        let recipe = Recipe::default().module("uio").module("virtiofs");
        let image = recipe.build(&options.cache)?;
        let accel = accel::detect(&image.kernel)?;
        let release = &image.manifest.kernel_release;
        let modules = [GuestModule::Direct, GuestModule::Wake];
        let built =
            modules.map(|module| Ok((module.build(release, &options.cache)?, inside(module))));
        let built: Result<Vec<(PathBuf, PathBuf)>> = built.into_iter().collect();
        if matches!(built, Err(Error::Interrupted | Error::Timeout { .. })) {
            return built.map(drop);
        }
        self.has_modules = built.is_ok();
        let files = built.unwrap_or_default();
        let files: Vec<_> = files
            .iter()
            .map(|(file, inside)| (file.as_path(), inside.as_path()))
            .collect();
        let folder = options.cache.join("selftest");
        let image = image.with_program_and_files(&options.vicinity, &files, &folder)?;
        self.accel = Some(accel);
        self.image = Prepared::Ready(Box::new(image));
        Ok(())
    }

    /// Returns the daemon, which it starts if it does not run.
    ///
    /// # Errors
    /// The daemon does not start.
    pub(crate) fn start_daemon(&mut self) -> Result<&Daemon> {
        if self.daemon.is_none() {
            let run = match self.run.take() {
                Some(run) => run,
                None => RunFolder::new()?,
            };
            let daemon = Daemon::start(&self.options.vicinity, run.path(), &self.logs());
            self.run = Some(run);
            self.daemon = Some(daemon?);
        }
        self.daemon()
    }

    /// Returns the daemon of the VMs that run.
    ///
    /// # Errors
    /// No VM was booted.
    pub(crate) fn daemon(&self) -> Result<&Daemon> {
        let none = || Error::Host("no daemon runs".to_owned());
        self.daemon.as_ref().ok_or_else(none)
    }

    /// Boots the VMs of these that do not run.
    ///
    /// # Errors
    /// As for [`Testbed::boot`].
    pub(crate) fn ensure(&mut self, guests: &[Guest]) -> Result<()> {
        for guest in guests {
            let runs = match self.vms.get(usize::from(guest.number() - 1)) {
                Some(Some(vm)) => vm.is_running()?,
                _ => false,
            };
            if !runs {
                self.boot(*guest)?;
            }
        }
        Ok(())
    }

    /// Boots a VM, in the place of the one that runs, and returns how long the boot took.
    ///
    /// # Errors
    /// The VM does not boot; the error shows the end of its console.
    pub(crate) fn boot(&mut self, guest: Guest) -> Result<Duration> {
        drop(self.take(guest));
        self.start_daemon()?;
        let spec = self.spec(guest)?;
        let begin = Instant::now();
        let vm = Vm::boot(self.image()?, spec)?;
        vm.wait_ready(BOOT)?;
        let took = begin.elapsed();
        self.daemon()?.until_state(guest.name(), "running", BOOT)?;
        if let Some(place) = self.vms.get_mut(usize::from(guest.number() - 1)) {
            *place = Some(vm);
        }
        Ok(took)
    }

    /// Returns a VM that runs.
    ///
    /// # Errors
    /// It was not booted.
    pub(crate) fn vm(&self, guest: Guest) -> Result<&Vm> {
        let vm = self.vms.get(usize::from(guest.number() - 1));
        let none = || Error::Host(format!("VM {} does not run", guest.name()));
        vm.and_then(Option::as_ref).ok_or_else(none)
    }

    /// Takes a VM out of the testbed.
    pub(crate) fn take(&mut self, guest: Guest) -> Option<Vm> {
        let place = self.vms.get_mut(usize::from(guest.number() - 1));
        place.and_then(Option::take)
    }

    /// Returns the guest image.
    ///
    /// # Errors
    /// [`Testbed::prepare`] did not succeed.
    pub(crate) fn image(&self) -> Result<&Image> {
        match &self.image {
            Prepared::Ready(image) => Ok(image),
            Prepared::Failed(why) => Err(Error::Host(why.clone())),
            Prepared::Not => Err(Error::Host("no guest image was built".to_owned())),
        }
    }

    /// Returns the folder of the logs.
    pub(crate) fn logs(&self) -> PathBuf {
        self.options.output.join("logs")
    }

    /// Returns the specification of a VM.
    ///
    /// # Errors
    /// The daemon does not print the options, or the bridge cannot be made.
    pub(crate) fn spec(&mut self, guest: Guest) -> Result<Spec> {
        let mut spec = self.spec_on_port(guest, guest.name())?;
        let daemon = self.daemon()?;
        let name = guest.name();
        let mut options: Vec<String> = Vec::new();
        if guest.has_region() {
            options.extend(daemon.options(&["message", "qemu-args", name])?);
            options.extend(SMP_MAXCPUS_2.map(str::to_owned));
        }
        let ports = [
            "direct",
            "qemu-args",
            name,
            "--ports",
            "2",
            "--memory",
            "1G",
        ];
        match guest {
            Guest::One => options.extend(daemon.options(&ports)?),
            Guest::Mover => options.extend(daemon.options(ports.get(..3).unwrap_or_default())?),
            Guest::Two => options.extend(daemon.options(&["space", "qemu-args", name])?),
            Guest::Three => options.extend(self.firmware()?),
        }
        spec.qemu_args.extend(options);
        if matches!(guest, Guest::One | Guest::Two) {
            spec.nics.push(self.bridge_nic(guest)?);
        }
        Ok(spec)
    }

    /// Returns the specification of a VM with the NIC of a port, and nothing else. The NIC has the VM's address on
    /// every port.
    ///
    /// # Errors
    /// The daemon does not print the options.
    pub(crate) fn spec_on_port(&self, guest: Guest, port: &str) -> Result<Spec> {
        let mut spec = Spec::new(port, &self.logs());
        spec.memory_mib = guest.memory_mib();
        let mac = channel::mac(SWITCH, guest.number());
        let address = channel::address(SWITCH, guest.number());
        spec.kernel_args.push(format!("lab.nic={mac},{address}/24"));
        let memory = format!("{}M", guest.memory_mib());
        let words = ["qemu-args", port, "--memory", &memory];
        let words = self.daemon()?.options(&words)?;
        spec.qemu_args
            .extend(words.into_iter().map(|word| with_mac(&word, &mac)));
        let mut machine: Vec<&str> = match guest {
            Guest::One | Guest::Three => vec!["-machine", "q35"],
            Guest::Two | Guest::Mover => vec!["-global", "i440FX-pcihost.pci-hole64-size=64G"],
        };
        if guest == Guest::One && self.accel == Some(Accel::Tcg) {
            // An emulated processor is AMD's and has 40 bits of addresses. SeaBIOS puts the memory of root ports at the
            // end of the address space, of which AMD reserves the last 12 GiB.
            machine.extend(["-global", "x86_64-cpu.phys-bits=39"]);
        }
        spec.qemu_args
            .extend(machine.into_iter().map(str::to_owned));
        Ok(spec)
    }

    fn bridge_nic(&mut self, guest: Guest) -> Result<Nic> {
        let bridge = match self.bridge.take() {
            Some(bridge) => bridge,
            None => Bridge::new(self.accel.unwrap_or(Accel::Tcg))?,
        };
        let nic = channel::nic(&bridge, BRIDGE, guest.name(), guest.number());
        self.bridge = Some(bridge);
        nic?.ok_or_else(|| Error::Host("a bridge has a NIC for each VM".to_owned()))
    }

    /// Returns what carries the bridge's frames, if there is a bridge.
    pub(crate) fn bridge_carrier(&self) -> String {
        self.bridge
            .as_ref()
            .map_or_else(String::new, Channel::description)
    }

    /// Returns QEMU's options for OVMF, with a copy of the variables.
    fn firmware(&self) -> Result<Vec<String>> {
        let firmware = Firmware::find().ok_or_else(|| Error::Host(NO_OVMF.to_owned()))?;
        let run = self
            .run
            .as_ref()
            .map(RunFolder::path)
            .unwrap_or(&self.options.output);
        let variables = run.join("ovmf-variables.fd");
        fs::copy(&firmware.variables, &variables)
            .context(|| format!("copy {}", firmware.variables.display()))?;
        let flash = |file: &std::path::Path, more| {
            let file = file.display();
            [
                "-drive".to_owned(),
                format!("if=pflash,format=raw,file={file}{more}"),
            ]
        };
        let parts = [flash(&firmware.code, ",readonly=on"), flash(&variables, "")];
        Ok(parts.concat())
    }
}

const NO_OVMF: &str =
    "OVMF is not installed: `apt-get install ovmf`, or `scripts/setup selftest`, as root";

/// Returns the path of a module below a guest's root.
fn inside(module: GuestModule) -> PathBuf {
    PathBuf::from(format!("lib/modules/{}.ko", module.name()))
}

/// Returns one of QEMU's options with this MAC address, if it has one.
fn with_mac(option: &str, mac: &str) -> String {
    let parts = option
        .split(',')
        .map(|part| match part.starts_with("mac=") {
            true => format!("mac={mac}"),
            false => part.to_owned(),
        });
    parts.collect::<Vec<_>>().join(",")
}

impl Subject for Testbed {
    fn missing(&mut self, need: Requirement) -> Result<Option<String>> {
        let unless = |good: bool, reason: &str| Ok((!good).then(|| reason.to_owned()));
        match need {
            Requirement::Vms if !rustix::process::geteuid().is_root() => {
                unless(false, "VMs, taps and namespaces need root")
            }
            Requirement::Vms => {
                if matches!(self.image, Prepared::Not) {
                    match self.prepare() {
                        Err(error @ (Error::Interrupted | Error::Timeout { .. })) => {
                            return Err(error);
                        }
                        Err(error) => {
                            self.image = Prepared::Failed(format!("no guest image: {error}"));
                        }
                        Ok(()) => {}
                    }
                }
                Ok(match &self.image {
                    Prepared::Failed(why) => Some(why.clone()),
                    _ => None,
                })
            }
            Requirement::Kvm => unless(
                self.accel == Some(Accel::Kvm),
                "the guests do not run under KVM",
            ),
            Requirement::Ovmf => unless(Firmware::find().is_some(), NO_OVMF),
            Requirement::Modules if self.has_modules => Ok(None),
            Requirement::Modules => Ok(guest_module::missing()
                .or_else(|| Some("the guests' kernel modules could not be built".to_owned()))),
            Requirement::MemoryMib(needed) => {
                let available = machine::available_mib();
                let reason =
                    format!("{available} MiB of memory are available, and the VMs need {needed}");
                unless(available >= needed + RESERVE_MIB, &reason)
            }
            Requirement::VfioNic => unless(
                !host::vfio_nics().is_empty(),
                "no NIC is bound to `vfio-pci`",
            ),
            Requirement::KvmStatistics => unless(
                fs::read_dir(host::KVM_STATISTICS).is_ok(),
                "KVM's statistics cannot be read: mount debugfs at /sys/kernel/debug",
            ),
        }
    }

    fn reset(&mut self) {
        for guest in Guest::ALL {
            drop(self.take(guest));
        }
        self.daemon = None;
        self.bridge = None;
        self.run = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_vm_on_every_port() {
        let option = "virtio-net-pci,netdev=n,mac=52:54:00:aa:bb:cc,rx_queue_size=256";
        let wanted = "virtio-net-pci,netdev=n,mac=52:54:00:00:02:04,rx_queue_size=256";
        assert_eq!(with_mac(option, "52:54:00:00:02:04"), wanted);
        assert_eq!(with_mac("-device", "x"), "-device");
    }
}
