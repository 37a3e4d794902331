//! MPI programs in four VMs: on the message plane, beside Open MPI's TCP over a bridge.

use std::fmt;
use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::members;
use super::options::Options;
use super::pair::BOOT;
use report::stats::{median, paired_ratio};
use report::target::Target;
use vm_harness::accel::{self, Accel};
use vm_harness::bridge::Bridge;
use vm_harness::channel::{self, Channel};
use vm_harness::error::{Context, Error, Result};
use vm_harness::host::ChildProcess;
use vm_harness::machine::Machine;
use vm_harness::mpi::{self, Files};
use vm_harness::progress::Progress;
use vm_harness::scope::{self, RunFolder};
use vm_harness::vm::{SMP_MAXCPUS_2, Spec, Vm};

const VMS: [&str; 4] = ["vm1", "vm2", "vm3", "vm4"];

/// Longest time of a job.
const LIMIT: Duration = Duration::from_secs(300);

/// The components that a job may use: Open MPI's matching above the message plane, the plane's own, and Open MPI's above TCP.
const COMPONENTS: [(&str, &str); 3] = [
    ("plane", "--mca btl self,vader,vicinity"),
    ("plane_pml", "--mca pml vicinity"),
    ("tcp", "--mca btl self,vader,tcp"),
];

/// What a job does: two ranks in two VMs, or two ranks in each VM.
const JOBS: [&str; 2] = [
    "--host vm1,vm2 -n 2 figures 0.5 pair",
    "--oversubscribe --map-by node --mca mpi_yield_when_idle 1 -n 8 figures 0.5 collective",
];

/// Only over `plane`: Open MPI has no windows of allocated memory over TCP, and those of `plane_pml` are the same. It is the first job.
const ONE_SIDED: &str = "--host vm1,vm2 -n 2 figures 0.5 one-sided";

/// A line of the program `figures`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiFigure {
    /// What was measured: `latency`, `bandwidth`, `rate`, `put`, `get`, `put-bandwidth`,
    /// `get-bandwidth`, `fetch-rate`, `alltoall` or `allreduce`.
    pub name: String,
    /// Bytes of a message.
    pub bytes: u64,
    /// Microseconds; of a bandwidth, MB/s, and of a rate, messages or operations a second.
    pub value: f64,
}

/// A round over one component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MpiSample {
    /// The round, from 1.
    pub round: u32,
    /// `plane`, `plane_pml` (not in older results) or `tcp`.
    pub over: String,
    /// All figures.
    pub figures: Vec<MpiFigure>,
    /// The VM of each rank of the collectives.
    pub placement: Vec<String>,
}

/// Results of the demo of MPI.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MpiResult {
    /// The machine, the time and the state of the source tree.
    pub machine: Machine,
    /// The accelerator of the guests.
    pub accelerator: Accel,
    /// Every round.
    pub samples: Vec<MpiSample>,
    /// The targets, and the measured values.
    pub targets: Vec<Target>,
}

/// Fields are dropped in this order.
struct Cluster {
    vms: Vec<Vm>,
    _serve: ChildProcess,
    _bridge: Bridge,
    accel: Accel,
    _run: RunFolder,
}

/// Boots four VMs with Open MPI and these files, measures an MPI program over the message plane and over TCP, writes
/// `mpi.json` into the output folder, and returns the result.
///
/// # Errors
/// As for [`run`](super::run).
pub fn mpi(options: &Options, files: &Files, progress: &Progress) -> Result<MpiResult> {
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    let machine = Machine::describe()?;
    let cluster = Cluster::start(options, files, progress)?;
    let mut samples = Vec::new();
    let mut order = COMPONENTS;
    for round in 1..=options.rounds {
        progress.step(&format!("round {round} of {}", options.rounds));
        for (over, components) in order {
            samples.push(cluster.sample(round, over, components)?);
        }
        order.rotate_left(1);
    }
    let result = MpiResult {
        machine,
        accelerator: cluster.accel,
        targets: targets(&samples),
        samples,
    };
    progress.step("stopping the VMs");
    drop(cluster);
    options.write("mpi.json", &result)?;
    Ok(result)
}

impl Cluster {
    fn start(options: &Options, files: &Files, progress: &Progress) -> Result<Self> {
        scope::sweep_and_log(progress)?;
        progress.step("guest image with Open MPI (Debian packages, kept for the next time)");
        let image = mpi::recipe().build(&options.cache)?;
        let image = files.put_into(&image, &options.cache.join("with-mpi"))?;
        let accel = accel::detect(&image.kernel)?;
        let bridge = Bridge::new(accel)?;
        let run = RunFolder::new()?;
        let serve = members::serve(&options.vicinity, run.path(), &VMS)?;
        progress.step(&format!("booting four VMs under {}", accel.title()));
        let boot = |(number, name): (u8, &&str)| {
            let mut spec = Spec::new(name, &options.output);
            spec.memory_mib = mpi::MEMORY_MIB;
            spec.nics
                .extend(channel::nic(&bridge as &dyn Channel, 1, name, number)?);
            spec.qemu_args = members::qemu_args(&options.vicinity, run.path(), name)?;
            // Emulated machines with one possible CPU use no heap for windows (`window::locks`).
            spec.qemu_args.extend(SMP_MAXCPUS_2.map(str::to_owned));
            Vm::boot(&image, spec)
        };
        let vms = (1..).zip(&VMS).map(boot).collect::<Result<Vec<_>>>()?;
        for vm in &vms {
            vm.wait_ready(BOOT)?;
            let _goes_on = vm.start(mpi::JOIN)?;
            members::until(vm, "gateway.sock")?;
        }
        let addresses: Vec<_> = (1..=4).map(|number| channel::address(1, number)).collect();
        mpi::admit(&vms, &addresses)?;
        if let Some(first) = vms.first() {
            mpi::write_hostfile(first, &format!("{}\\n", VMS.join("\\n")))?;
        }
        Ok(Self {
            vms,
            _serve: serve,
            _bridge: bridge,
            accel,
            _run: run,
        })
    }

    fn sample(&self, round: u32, over: &str, components: &str) -> Result<MpiSample> {
        let mut sample = MpiSample {
            round,
            over: over.to_owned(),
            figures: Vec::new(),
            placement: Vec::new(),
        };
        let first = self.vms.first();
        let first = first.ok_or_else(|| Error::Host("there is no VM".to_owned()))?;
        let one_sided = (over == "plane").then_some(ONE_SIDED);
        for job in one_sided.into_iter().chain(JOBS) {
            let said = first.check(&mpi::job(&format!("{components} {job}")), LIMIT)?;
            let (figures, placement) = mpi_figures(&said)?;
            sample.figures.extend(figures);
            sample.placement = placement;
        }
        Ok(sample)
    }
}

/// Reads the output of the program `figures`: its figures, and the VM of each rank.
///
/// # Errors
/// A line is none of the program's.
pub fn mpi_figures(said: &str) -> Result<(Vec<MpiFigure>, Vec<String>)> {
    let mut figures = Vec::new();
    let mut placement = Vec::new();
    for line in said.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let unreadable = || Error::unreadable("the figures of MPI", line);
        match words[..] {
            ["rank", _, vm] => placement.push(vm.to_owned()),
            [name, bytes, value] => figures.push(MpiFigure {
                name: name.to_owned(),
                bytes: bytes.parse().map_err(|_| unreadable())?,
                value: value.parse().map_err(|_| unreadable())?,
            }),
            _ => return Err(unreadable()),
        }
    }
    Ok((figures, placement))
}

/// Values of a figure over one component, in the order of the rounds.
fn values(samples: &[MpiSample], over: &str, name: &str, bytes: u64) -> Vec<f64> {
    let mut samples: Vec<_> = samples
        .iter()
        .filter(|sample| sample.over == over)
        .collect();
    samples.sort_by_key(|sample| sample.round);
    let figures = samples.into_iter().flat_map(|sample| &sample.figures);
    let mine = figures.filter(|figure| figure.name == name && figure.bytes == bytes);
    mine.map(|figure| figure.value).collect()
}

fn targets(samples: &[MpiSample]) -> Vec<Target> {
    let of = |over, name, bytes| values(samples, over, name, bytes);
    let shorter = |name, bytes| paired_ratio(&of("plane", name, bytes), &of("tcp", name, bytes));
    let wider = paired_ratio(
        &of("tcp", "bandwidth", 1 << 20),
        &of("plane", "bandwidth", 1 << 20),
    );
    let mut targets = vec![
        Target::at_least(
            "8 B: latency of TCP, in those of the plane",
            shorter("latency", 8),
            50.0,
        ),
        Target::at_least("1 MiB: bandwidth against TCP", wider, 4.0),
    ];
    for (name, bytes, text) in [
        ("alltoall", 8, "alltoall of 8 B, 8 ranks: time of TCP"),
        ("alltoall", 4096, "alltoall of 4 KiB, 8 ranks: time of TCP"),
        ("allreduce", 8, "allreduce of 8 B, 8 ranks: time of TCP"),
        (
            "allreduce",
            4096,
            "allreduce of 4 KiB, 8 ranks: time of TCP",
        ),
    ] {
        targets.push(Target::at_least(text, shorter(name, bytes), 5.0));
    }
    targets
}

impl fmt::Display for MpiResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.samples.iter().map(|sample| sample.round).max();
        writeln!(
            f,
            "Four VMs under {}, {} rounds, medians\n\n{:24}  {:>14}  {:>14}  {:>14}",
            self.accelerator.title(),
            rounds.unwrap_or_default(),
            "",
            "message plane",
            "pml vicinity",
            "TCP, bridge"
        )?;
        // The plane's samples have all figures.
        let mut samples = self.samples.iter();
        let first = samples.find(|sample| sample.over == "plane");
        for figure in first.into_iter().flat_map(|first| &first.figures) {
            let of = |over| values(&self.samples, over, &figure.name, figure.bytes);
            let unit = match figure.name.as_str() {
                name if name.ends_with("bandwidth") => "MB/s",
                name if name.ends_with("rate") => "1/s",
                _ => "us",
            };
            let name = format!("{}, {} B", figure.name, figure.bytes);
            write!(f, "{name:24}")?;
            for (over, _) in COMPONENTS {
                match &*of(over) {
                    [] => write!(f, "  {:14}", "")?,
                    values => write!(f, "  {:>9.1} {unit:4}", median(values))?,
                }
            }
            writeln!(f)?;
        }
        writeln!(f, "\nwhere the ranks of the collectives ran:")?;
        let placement = first.into_iter().flat_map(|first| &first.placement);
        for (rank, vm) in placement.enumerate() {
            writeln!(f, "  rank {rank}  {vm}")?;
        }
        writeln!(f)?;
        self.targets.iter().try_for_each(|target| target.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_placement_are_read() {
        let (figures, placement) =
            mpi_figures("latency 8 1.5\nrate 8 2e6\nrank 0 vm1\nrank 1 vm2\n").unwrap();
        assert_eq!(figures.len(), 2);
        assert_eq!((figures[0].bytes, figures[0].value), (8, 1.5));
        assert_eq!(placement, ["vm1", "vm2"]);
        assert!(mpi_figures("latency 8\n").is_err());
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let sample = |round, over: &str, value| MpiSample {
            round,
            over: over.to_owned(),
            figures: vec![MpiFigure {
                name: "latency".to_owned(),
                bytes: 8,
                value,
            }],
            placement: Vec::new(),
        };
        let samples = [
            sample(1, "plane", 1.0),
            sample(1, "tcp", 60.0),
            sample(2, "tcp", 6000.0),
            sample(2, "plane", 100.0),
        ];
        assert_eq!(targets(&samples)[0].measured, 60.0);
    }
}
