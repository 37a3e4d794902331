//! `vicinity space`: the memory plane.

use clap::Subcommand;
use lab::study::inference;
use serde::Serialize;
use space::simulate::{self, Outcome, Policy, Trace};

use crate::failure::Failure;
use crate::list;
use crate::table::{self, Align};

/// What the controller is compared with, in the last columns.
const RIVALS: [Policy; 3] = [Policy::Static, Policy::Reactive1, Policy::Pool];

#[derive(Debug, Subcommand)]
pub(crate) enum Space {
    /// Try the controller on simulated VMs, beside simpler ones, on loads of ten minutes each
    Simulate {
        /// Runs of each load, each with other jobs
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(2..=1000))]
        seeds: u64,
        /// Slots for the four VMs together
        #[arg(long, value_delimiter = ',', default_values_t = [16, 32], value_parser = clap::value_parser!(u32).range(8..=100_000))]
        budgets: Vec<u32>,
        /// As JSON, with every run
        #[arg(long)]
        json: bool,
    },
}

/// What became of a policy, seed by seed.
#[derive(Debug, Serialize)]
struct Runs {
    load: &'static str,
    budget: u32,
    policy: &'static str,
    outcomes: Vec<Outcome>,
}

impl Space {
    /// The text to print.
    pub(crate) fn run(&self) -> Result<String, Failure> {
        let Self::Simulate {
            seeds,
            budgets,
            json,
        } = self;
        let mut runs = Vec::new();
        for budget in budgets {
            for load in Trace::ALL {
                runs.extend(Policy::ALL.map(|policy| {
                    Runs {
                        load: load.name(),
                        budget: *budget,
                        policy: policy.name(),
                        outcomes: (0..*seeds)
                            .map(|seed| simulate::run(load, policy, *budget, seed))
                            .collect(),
                    }
                }));
            }
        }
        match json {
            true => Ok(list::as_json(&runs)),
            false => Ok(as_text(&runs, *seeds)),
        }
    }
}

fn as_text(runs: &[Runs], seeds: u64) -> String {
    let mut head = vec![("load", Align::Left), ("slots", Align::Right)];
    head.extend(Policy::ALL.map(|policy| (policy.name(), Align::Right)));
    let against = RIVALS.map(|rival| format!("- {}", rival.name()));
    head.extend(against.iter().map(|title| (title.as_str(), Align::Right)));
    let rows: Vec<_> = runs.chunks(Policy::ALL.len()).map(row).collect();
    format!(
        "Jobs that got their slot later than {} s, in percent, and changes of a space a minute \
         (four VMs, 600 s, {seeds} seeds).\nLast columns: the controller's late jobs less the \
         other's, with the 95 % interval over pairs of equal seeds.\n\n{}",
        simulate::DEADLINE,
        table::format(&head, &rows)
    )
}

/// The line of one load and budget.
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
    for rival in RIVALS {
        let Some(rival) = cells.iter().find(|cell| cell.policy == rival.name()) else {
            continue;
        };
        let pairs = late(ours).into_iter().zip(late(rival));
        let differences: Vec<f64> = pairs.map(|(ours, theirs)| ours - theirs).collect();
        let interval = inference::bootstrap(differences.len(), |picked| {
            let picked = picked.iter().filter_map(|at| differences.get(*at).copied());
            inference::mean(&picked.collect::<Vec<_>>())
        });
        line.push(format!("{:+.1} to {:+.1}", interval.low, interval.high));
    }
    line
}
