//! `vicinity lab`.

mod lookups;
mod residents;
mod study;

use std::path::PathBuf;

use clap::Subcommand;
use vm_harness::accel::{self, Accel};

use super::failure::Failure;
use crate::commands::output::print;

#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// List every experiment, and whether this machine can run it
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments on real VMs and write a report; needs root
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Run {
        /// Experiments, as `list` names them
        #[arg(group = "which", value_name = "ID")]
        ids: Vec<String>,
        /// All that this machine can run
        #[arg(long, group = "which")]
        all: bool,
        /// Only these levels of a factor; may be given several times
        #[arg(long, value_name = "FACTOR=LEVEL[,LEVEL]")]
        only: Vec<String>,
        /// How much is measured: a quarter of an hour, about two hours, a night
        #[arg(long, value_enum, default_value = "default")]
        scale: Scale,
        /// Minutes for measuring, in place of the scale's; more blocks are measured in more time
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        minutes: Option<u32>,
        /// Seed of the order in which cells are measured [default: drawn, and noted]
        #[arg(long)]
        seed: Option<u64>,
        /// The accelerator of the VMs: `kvm` or `tcg`; with `kvm`, the run fails where KVM does not work. Without this
        /// option KVM is used where it works
        #[arg(long, env = "VICINITY_ACCEL", value_name = "NAME")]
        accel: Option<Accel>,
        /// Folder of the results
        #[arg(long, default_value = study::FOLDER, value_name = "DIR")]
        output: PathBuf,
    },
    /// Complete a run that was cut short
    Resume {
        /// Folder of the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Write a run's report again from its samples
    Report {
        /// Folder of the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Compare two runs, cell by cell
    Compare {
        /// Folder of a run
        a: PathBuf,
        /// Folder of another
        b: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Load a web server; the lab runs it in the second host's place
    #[command(hide = true)]
    Http {
        #[arg(long)]
        server: std::net::SocketAddr,
        #[arg(long)]
        path: String,
        #[arg(long)]
        rate: Option<f64>,
        #[arg(long)]
        warm_up: f64,
        #[arg(long)]
        seconds: f64,
        #[arg(long)]
        workers: usize,
    },
    /// Fill a switch's residency table; the lab runs it beside the uplink
    #[command(hide = true)]
    Residents {
        #[arg(long)]
        count: u32,
    },
    /// Time look-ups among so many residents, in nanoseconds; the lab runs it
    #[command(hide = true)]
    Lookups {
        #[arg(long)]
        residents: u32,
    },
}

/// How much is measured.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Scale {
    Ci,
    Default,
    Full,
}

impl From<Scale> for lab::catalogue::Scale {
    fn from(scale: Scale) -> Self {
        match scale {
            Scale::Ci => Self::Ci,
            Scale::Default => Self::Default,
            Scale::Full => Self::Full,
        }
    }
}

impl Lab {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self {
            Self::List { json } => print(&study::list(json)),
            Self::Run {
                ids,
                only,
                scale,
                minutes,
                seed,
                accel,
                output,
                ..
            } => {
                accel.into_iter().for_each(accel::choose);
                let scale = scale.into();
                print(&study::start(&ids, &only, scale, minutes, seed, &output)?)
            }
            Self::Resume { output } => print(&study::resume(&output)?),
            Self::Report { output } => print(&study::report(&output)?),
            Self::Compare { a, b, json } => print(&study::compare(&a, &b, json)?),
            Self::Http {
                server,
                path,
                rate,
                warm_up,
                seconds,
                workers,
            } => print(&study::request(&lab::http::Load {
                server,
                path,
                rate,
                warm_up,
                seconds,
                workers,
            })),
            Self::Residents { count } => residents::fill(count),
            Self::Lookups { residents } => print(&lookups::time(residents).to_string()),
        }
    }
}
