//! The demo: two real VMs, the same traffic over Vicinity's switch and over the baseline.
//!
//! Each VM has one NIC on each channel, so both channels are measured in the same VMs, in the
//! same run, in turn: a busy moment of the machine hits both. [`run`] measures and writes
//! `result.json` and `report.html`; [`shell()`] keeps the VMs and opens a console for each.

mod measure;
mod messages;
mod metric;
pub(crate) mod result;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::accel::{self, Accel};
use crate::channel::{self, Channel, Setting};
use crate::error::{Context, Error, Result};
use crate::image::{Image, Recipe};
use crate::machine::Machine;
use crate::progress::Progress;
use crate::vm::{Spec, Vm};
use crate::{direct, report, scope, workload};

pub use measure::Durations;
pub use messages::{MessageResult, MessageSample, TcpSample, messages};
pub use metric::{METRICS, Metric};
pub use result::{Cpu, DemoResult, Described, Ratio, Sample, Summary, Verdict};
pub use shell::shell;

/// Where the demo's parts are.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `vicinity` program, which serves the switch.
    pub vicinity: PathBuf,
    /// Folder of the guest images, kept from run to run.
    pub cache: PathBuf,
    /// Folder of the results and logs.
    pub output: PathBuf,
    /// The channels: the first is the baseline, the second is compared with it.
    pub channels: [&'static str; 2],
    /// Rounds; each measures every workload once over each channel.
    pub rounds: u32,
    /// Length of the measurements.
    pub durations: Durations,
}

impl Options {
    /// The demo as users see it: `bridge` and `switch`, five rounds, below `target`.
    #[must_use]
    pub fn new(vicinity: &Path, target: &Path) -> Self {
        Self {
            vicinity: vicinity.to_owned(),
            cache: target.join("lab"),
            output: target.join("demo"),
            channels: ["bridge", "switch"],
            rounds: 5,
            durations: Durations::default(),
        }
    }

    /// The same with this channel beside the bridge.
    ///
    /// # Errors
    /// [`Error::Host`] when what it is built with is missing.
    pub fn over(mut self, channel: &str) -> Result<Self> {
        if channel == "direct" {
            direct::missing().map_or(Ok(()), |why| Err(Error::Host(why)))?;
            self.channels = ["bridge", "direct"];
        }
        Ok(self)
    }
}

/// Longest boot: an emulated guest on a busy machine.
const BOOT: Duration = Duration::from_secs(120);

const VMS: [&str; 2] = ["vm1", "vm2"];

/// Two VMs joined by two channels. Fields are dropped in this order.
struct Pair {
    vms: [Vm; 2],
    channels: [Box<dyn Channel>; 2],
    accel: Accel,
    image: Image,
}

impl Pair {
    fn start(options: &Options, progress: &Progress) -> Result<Self> {
        scope::sweep_and_tell(progress)?;
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
            channel::open(base, &setting)?,
            channel::open(other, &setting)?,
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

    /// Every channel carries a packet; better found out here than by a benchmark's time-out.
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

/// Measure, write `result.json` and `report.html` into the output folder, and return the result.
///
/// # Errors
/// Anything that keeps the VMs from running or the figures from being read;
/// [`Error::Interrupted`] after Ctrl-C, when [`crate::interrupt::install`] was called. Whatever
/// the end, nothing is left running.
pub fn run(options: &Options, progress: &Progress) -> Result<DemoResult> {
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    let machine = Machine::look()?;
    let pair = Pair::start(options, progress)?;
    let [_, server] = &pair.vms;
    workload::serve(server)?;
    let samples = measure::rounds(&pair, options, progress)?;
    let channels = pair.channels.each_ref().map(|channel| Described {
        name: channel.name().to_owned(),
        description: channel.description(),
    });
    let mut result = DemoResult {
        machine,
        accelerator: pair.accel,
        guest_kernel: pair.image.manifest.kernel_release.clone(),
        durations: options.durations,
        cpu_definition: measure::CPU_DEFINITION.to_owned(),
        summary: result::summarise(&channels, &samples),
        channels,
        samples,
        seconds: 0.0,
    };
    progress.step("stopping the VMs");
    drop(pair);
    result.seconds = progress.seconds();
    report::write(&result, &options.output)?;
    Ok(result)
}
