//! `vicinity lab`.

mod fill_fdb;
mod lookups;
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
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run experiments on real VMs and write a report; needs root
    #[command(group = clap::ArgGroup::new("which").required(true))]
    Run {
        /// Experiments, as `list` names them
        #[arg(group = "which", value_name = "ID")]
        ids: Vec<String>,
        /// Run all experiments that this machine can run
        #[arg(long, group = "which")]
        all: bool,
        /// Measure only these levels of a factor; you can repeat this option
        #[arg(long, value_name = "FACTOR=LEVEL[,LEVEL]")]
        only: Vec<String>,
        /// Amount of measuring: a quarter of an hour, about two hours, or a night
        #[arg(long, value_enum, default_value = "default")]
        scale: Scale,
        /// Minutes of measuring, instead of the scale's; more time allows more blocks
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
        minutes: Option<u32>,
        /// Seed of the random order of cells [default: a random number, which the report has]
        #[arg(long)]
        seed: Option<u64>,
        /// Accelerator of the VMs: `kvm` or `tcg`; with `kvm`, the run fails if KVM does not work. Without this
        /// option, the run uses KVM if it works
        #[arg(long, env = "VICINITY_ACCEL", value_name = "NAME")]
        accel: Option<Accel>,
        /// Folder for the results
        #[arg(long, default_value = study::FOLDER, value_name = "DIR")]
        output: PathBuf,
    },
    /// Complete an interrupted run
    Resume {
        /// Folder for the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Write a run's report again from its samples
    Report {
        /// Folder for the results
        #[arg(default_value = study::FOLDER)]
        output: PathBuf,
    },
    /// Compare two runs, cell by cell
    Compare {
        /// Folder of a run
        a: PathBuf,
        /// Folder of another run
        b: PathBuf,
        /// Print JSON
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
    /// Fill a switch's FDB; the lab runs it beside the uplink
    #[command(hide = true)]
    FillFdb {
        #[arg(long)]
        count: u32,
    },
    /// Measure a look-up in an FDB with this many entries, in nanoseconds; the lab runs it
    #[command(hide = true)]
    Lookups {
        #[arg(long)]
        fdb_entries: u32,
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
            Self::FillFdb { count } => fill_fdb::fill(count),
            Self::Lookups { fdb_entries } => print(&lookups::time(fdb_entries).to_string()),
        }
    }
}
