//! `vicinity space`: commands of the memory plane. The process of a space is
//! [`crate::processes::space`].

mod sizing;

use std::path::Path;

use clap::Subcommand;
use report::inference;
use serde::Serialize;
use space::simulate::{self, Outcome, Policy, Trace};

use super::configuration::{self, KeyValue, Target};
use super::failure::Failure;
use super::output;
use super::qemu_args;
use crate::client::{self, ClientError};
use crate::name;
use crate::runtime_paths::{space_monitor, space_socket};
use crate::space_device::{CHARDEV, DEVICE, TAG};
use crate::status::SpaceStatus;
use crate::table::{self, Align};

/// The policies that the last columns compare the controller with.
const BASELINES: [Policy; 3] = [Policy::Static, Policy::Reactive1, Policy::Pool];

#[derive(Debug, Subcommand)]
pub(crate) enum Space {
    /// List the daemon's spaces, with their state
    List {
        /// Print JSON, with every counter
        #[arg(long)]
        json: bool,
    },
    /// Show one, with every counter
    Show {
        /// Name of the VM
        vm: String,
    },
    /// Create a VM's space, like a `[[space]]` in the configuration file
    Create {
        /// Name of the VM
        #[arg(value_parser = vm)]
        vm: String,
        /// Keys of the configuration, like slots=64
        #[arg(value_name = "KEY=VALUE")]
        pairs: Vec<KeyValue>,
    },
    /// Change the slots, the objective or the rate of a space, without a disturbance of programs
    Set {
        /// Name of the VM
        vm: String,
        /// Keys to set; KEY= removes a key
        #[arg(value_name = "KEY=VALUE", required = true)]
        pairs: Vec<KeyValue>,
    },
    /// Remove a space with all its files
    Remove {
        /// Name of the VM
        vm: String,
    },
    /// Show the spaces every second
    Top {
        /// Print once and end
        #[arg(long)]
        once: bool,
        /// Print a line of JSON each second
        #[arg(long)]
        json: bool,
    },
    /// Show why the controller chose the sizes of spaces
    Explain {
        /// Name of a VM; without it, all VMs
        vm: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print QEMU's options for a VM with a space, in addition to those of its port
    QemuArgs {
        /// Name of the VM
        #[arg(value_parser = vm)]
        vm: String,
        /// Print a JSON array of the words
        #[arg(long)]
        json: bool,
    },
    /// Compare the controller with simpler ones on simulated VMs, with loads of ten minutes each
    Simulate {
        /// Number of runs of each load, each with other random jobs
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=1000))]
        seeds: u64,
        /// Budgets: slots for the four VMs together
        #[arg(long, value_delimiter = ',', default_values_t = [16, 32], value_parser = clap::value_parser!(u32).range(8..=100_000))]
        budgets: Vec<u32>,
        /// Print JSON, with every run
        #[arg(long)]
        json: bool,
    },
}

/// The results of a policy, seed by seed.
#[derive(Debug, Serialize)]
struct Runs {
    load: &'static str,
    budget: u32,
    policy: &'static str,
    outcomes: Vec<Outcome>,
}

impl Space {
    /// Runs the command. Returns the text to print.
    pub(crate) fn run(&self, runtime_dir: &Path) -> Result<String, Failure> {
        match self {
            Self::List { json } => Ok(list(runtime_dir, *json)?),
            Self::Show { vm } => show(runtime_dir, vm),
            Self::Create { vm, pairs } => {
                Ok(configuration::add(runtime_dir, Target::Space(vm), pairs)?)
            }
            Self::Set { vm, pairs } => {
                Ok(configuration::set(runtime_dir, Target::Space(vm), pairs)?)
            }
            Self::Remove { vm } => Ok(configuration::remove(runtime_dir, Target::Space(vm))?),
            Self::Top { once, json } => Ok(sizing::top(runtime_dir, *once, *json)?),
            Self::Explain { vm, json } => Ok(sizing::explain(runtime_dir, vm.as_deref(), *json)?),
            Self::QemuArgs { vm, json } => Ok(qemu_args::lines(&qemu_args(runtime_dir, vm), *json)),
            Self::Simulate {
                seeds,
                budgets,
                json,
            } => {
                let runs = simulate(*seeds, budgets);
                match json {
                    true => Ok(output::as_json(&runs)),
                    false => Ok(as_text(&runs, *seeds)),
                }
            }
        }
    }
}

/// Parses a name of a VM.
fn vm(text: &str) -> Result<String, String> {
    name::check(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Returns QEMU's options. The VM's memory has to be as `vicinity qemu-args` prints it.
fn qemu_args(runtime_dir: &Path, vm: &str) -> [(&'static str, String); 3] {
    let path = qemu_args::value(&space_socket(runtime_dir, vm));
    let monitor = qemu_args::value(&space_monitor(runtime_dir, vm));
    let device = format!("vhost-user-fs-pci,id={DEVICE},chardev={CHARDEV},tag={TAG}");
    [
        ("-chardev", format!("socket,id={CHARDEV},path={path}")),
        ("-device", device),
        ("-qmp", format!("unix:{monitor},server=on,wait=off")),
    ]
}

/// Lists the daemon's spaces.
fn list(runtime_dir: &Path, json: bool) -> Result<String, ClientError> {
    let spaces: Vec<SpaceStatus> = client::get(runtime_dir, "/v1/spaces")?;
    if json {
        return Ok(output::as_json(&spaces));
    }
    let (left, right) = (Align::Left, Align::Right);
    let head = [
        ("VM", left),
        ("STATE", left),
        ("SLOTS", right),
        ("USED", right),
        ("FILES", right),
        ("WAITING", right),
        ("CLIENTS", right),
        ("SENT", right),
        ("ADDRESS", left),
        ("REASON", left),
    ];
    let rows: Vec<_> = spaces.iter().map(space_row).collect();
    Ok(table::format(&head, &rows))
}

/// Returns one space, with every figure, as JSON.
fn show(runtime_dir: &Path, vm: &str) -> Result<String, Failure> {
    let spaces: Vec<SpaceStatus> = client::get(runtime_dir, "/v1/spaces")?;
    match spaces.iter().find(|space| space.vm == vm) {
        Some(space) => Ok(output::as_json(space)),
        None => {
            let names = spaces.iter().map(|space| space.vm.as_str());
            Err(Failure::missing("space of a VM", vm, names))
        }
    }
}

fn space_row(space: &SpaceStatus) -> Vec<String> {
    let figures = &space.figures;
    let scheme = if space.tls { "https" } else { "http" };
    let state = match (space.up, figures.waiting) {
        (false, _) => "down",
        (true, 0) => "up",
        (true, _) => "full",
    };
    vec![
        space.vm.clone(),
        state.to_owned(),
        figures.slots.to_string(),
        figures.used.to_string(),
        figures.published.to_string(),
        figures.waiting.to_string(),
        figures.clients.to_string(),
        figures.sent.to_string(),
        match (space.listen, &space.push) {
            (Some(at), _) => format!("{scheme}://{at}/"),
            (None, Some(to)) => format!("to {to}"),
            (None, None) => "-".to_owned(),
        },
        space
            .reason
            .clone()
            .or(figures.push_error.clone())
            .unwrap_or_default(),
    ]
}

fn simulate(seeds: u64, budgets: &[u32]) -> Vec<Runs> {
    let mut runs = Vec::new();
    for budget in budgets {
        for load in Trace::ALL {
            runs.extend(Policy::ALL.map(|policy| {
                Runs {
                    load: load.name(),
                    budget: *budget,
                    policy: policy.name(),
                    outcomes: (0..seeds)
                        .map(|seed| simulate::run(load, policy, *budget, seed))
                        .collect(),
                }
            }));
        }
    }
    runs
}

fn as_text(runs: &[Runs], seeds: u64) -> String {
    let mut head = vec![("load", Align::Left), ("slots", Align::Right)];
    head.extend(Policy::ALL.map(|policy| (policy.name(), Align::Right)));
    let against = BASELINES.map(|baseline| format!("- {}", baseline.name()));
    head.extend(against.iter().map(|title| (title.as_str(), Align::Right)));
    let rows: Vec<_> = runs.chunks(Policy::ALL.len()).map(row).collect();
    format!(
        "Percent of jobs that waited longer than {} s for their slot, and resizes of a space per minute (four \
            VMs, 600 s, {seeds} seeds).\nLast columns: late jobs of the controller minus those of the other \
            policy, as a 95 % interval over pairs of equal seeds.\n\n{}",
        simulate::DEADLINE,
        table::format(&head, &rows)
    )
}

/// Returns the row for one load and budget.
fn row(cells: &[Runs]) -> Vec<String> {
    let late = |runs: &Runs| -> Vec<f64> { runs.outcomes.iter().map(|o| o.late * 100.0).collect() };
    let Some((ours, _)) = cells.split_last() else {
        return Vec::new();
    };
    let mut line = vec![ours.load.to_owned(), ours.budget.to_string()];
    line.extend(cells.iter().map(|cell| {
        let resizes: Vec<f64> = cell.outcomes.iter().map(|o| o.resizes).collect();
        let (late, resizes) = (inference::mean(&late(cell)), inference::mean(&resizes));
        format!("{late:.1} / {resizes:.0}")
    }));
    for baseline in BASELINES {
        let Some(baseline) = cells.iter().find(|cell| cell.policy == baseline.name()) else {
            continue;
        };
        let pairs = late(ours).into_iter().zip(late(baseline));
        let differences: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
        let interval = inference::bootstrap(differences.len(), |picked| {
            let picked = picked.iter().filter_map(|at| differences.get(*at).copied());
            inference::mean(&picked.collect::<Vec<_>>())
        });
        line.push(format!("{:+.1} to {:+.1}", interval.low, interval.high));
    }
    line
}
