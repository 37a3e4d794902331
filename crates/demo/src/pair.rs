//! The two VMs of the demo.

use std::path::Path;
use std::time::Duration;

use vm_harness::accel::{self, Accel};
use vm_harness::channel::{self, Channel, Setting};
use vm_harness::channels;
use vm_harness::error::{Error, Result};
use vm_harness::image::{Image, Recipe};
use vm_harness::progress::Progress;
use vm_harness::scope;
use vm_harness::vm::{Spec, Vm};

use super::options::Options;

/// Longest time that a boot may take: that of an emulated guest on a busy machine.
pub(super) const BOOT: Duration = Duration::from_secs(120);

/// Names of the VMs.
pub(super) const VMS: [&str; 2] = ["vm1", "vm2"];

/// Two VMs joined by two channels. Fields are dropped in this order.
pub(super) struct Pair {
    pub(super) vms: [Vm; 2],
    pub(super) channels: [Box<dyn Channel>; 2],
    pub(super) accel: Accel,
    pub(super) image: Image,
}

impl Pair {
    pub(super) fn start(options: &Options, progress: &Progress) -> Result<Self> {
        scope::sweep_and_log(progress)?;
        progress.step("guest image (Debian packages, kept for the next time)");
        let image = Recipe::default().build(&options.cache)?;
        progress.step("accelerator: booting a kernel under KVM, where there is one");
        let accel = accel::detect(&image.kernel)?;
        progress.step(&format!("VMs will run under {}", accel.title()));
        let setting = Setting {
            vms: &VMS,
            accel,
            vicinity: &options.vicinity,
            cache: &options.cache,
            logs: &options.output,
        };
        let [base, other] = options.channels;
        let mut channels = [
            channels::open(base, &setting)?,
            channels::open(other, &setting)?,
        ];
        for channel in &channels {
            progress.step(&format!(
                "channel {}: {}",
                channel.name(),
                channel.description()
            ));
        }
        progress.step("booting two VMs");
        let [one, two] = [1, 2].map(|number| boot(&image, &channels, number, &options.output));
        let vms = [one?, two?];
        for vm in &vms {
            vm.wait_ready(BOOT)?;
        }
        progress.step(&format!(
            "both are up, kernel {}",
            image.manifest.kernel_release
        ));
        for (channel, network) in channels.iter_mut().zip(1..) {
            channel.join(&vms, network, &image.manifest.kernel_release)?;
        }
        let pair = Self {
            vms,
            channels,
            accel,
            image,
        };
        pair.check_reach()?;
        Ok(pair)
    }

    /// Checks that every channel carries packets. Otherwise the first workload would fail with a less clear time-out.
    fn check_reach(&self) -> Result<()> {
        let [one, _] = &self.vms;
        for (channel, network) in self.channels.iter().zip(1..) {
            let ping = format!("ping -c 2 -i 0.2 -W 5 {}", channel::address(network, 2));
            one.check(&ping, Duration::from_secs(30))
                .map_err(|error| match error {
                    Error::Guest { .. } => Error::Host(format!(
                        "the VMs do not reach each other over {}: {error}",
                        channel.name()
                    )),
                    other => other,
                })?;
        }
        Ok(())
    }
}

fn boot(image: &Image, channels: &[Box<dyn Channel>], number: u8, logs: &Path) -> Result<Vm> {
    let name = format!("vm{number}");
    let mut spec = Spec::new(&name, logs);
    for (channel, network) in channels.iter().zip(1..) {
        spec.nics
            .extend(channel::nic(channel.as_ref(), network, &name, number)?);
        spec.qemu_args.extend(channel.qemu_args(&name)?);
    }
    Vm::boot(image, spec)
}
