//! The subject of the checks: the host, a daemon, and VMs that stay from one check to the next.
//!
//! A check asks for the VMs that it uses, and the testbed boots those that do not run. After a failed check the testbed
//! ends everything, so that a check never fails because of an earlier one.

mod spec;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use vm_harness::accel::{self, Accel};
use vm_harness::bridge::Bridge;
use vm_harness::channel::Channel;
use vm_harness::error::{Error, Result};
use vm_harness::guest_module::{self, GuestModule};
use vm_harness::image::{Image, Recipe};
use vm_harness::machine;
use vm_harness::scope::RunFolder;
use vm_harness::vm::Vm;

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

    /// Returns what carries the bridge's frames, if there is a bridge.
    pub(crate) fn bridge_carrier(&self) -> String {
        self.bridge
            .as_ref()
            .map_or_else(String::new, Channel::description)
    }
}

const NO_OVMF: &str =
    "OVMF is not installed: `apt-get install ovmf`, or `scripts/setup selftest`, as root";

/// Returns the path of a module below a guest's root.
fn inside(module: GuestModule) -> PathBuf {
    PathBuf::from(format!("lib/modules/{}.ko", module.name()))
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
