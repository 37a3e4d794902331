//! The committed rates of MPI messages, and the rows of their table in `docs/mpi.md`: `scripts/bench-mpi-rate` groups them in
//! the same way.

use report::stats::median;
use serde_json::Value;

use super::results::{list, number, read};

const TRANSPORTS: [&str; 5] = ["plane", "plane_cm", "vader", "ucx", "mpich"];
const BASE: &str = "vader";

/// Parts of the highest speed: of a processor that has its core alone, at least, and of one that shares it, at most.
const WHOLE: f64 = 0.9;
const SHARED: f64 = 0.7;

/// Medians of fewer slices are not shown.
const FEWEST: usize = 20;

/// A slice: the rate, and the speeds of the sender's and the receiver's processor.
type Slice = [f64; 3];

fn slices(results: &Value, transport: &str) -> Vec<Slice> {
    let samples = list(results, "samples").iter();
    let mine = samples.filter(|sample| sample["transport"] == transport);
    let slice = |slice: &Value| [0, 1, 2].map(|at| number(slice, &format!("/{at}")));
    mine.flat_map(|sample| list(sample, "slices").iter().map(slice))
        .collect()
}

/// Returns the median rate of a group in millions, with the number of slices.
fn cell(rates: &[f64]) -> String {
    let count = rates.len();
    match count < FEWEST {
        true => format!("({count})"),
        false => format!("{:.1} ({count})", median(rates) / 1e6),
    }
}

/// Returns the rows that `docs/mpi.md` must contain.
pub(crate) fn rows() -> Vec<String> {
    let files = ["mpi-rate.json", "mpi-rate-zen4.json"];
    files.iter().flat_map(|file| rows_of(file)).collect()
}

fn rows_of(file: &str) -> Vec<String> {
    let results = read(file);
    let all = TRANSPORTS.map(|transport| slices(&results, transport));
    let speeds = all.iter().flatten().flat_map(|slice| &slice[1..]);
    let highest = speeds.copied().fold(0.0, f64::max);
    let is = |speed: f64, whole: bool| match whole {
        true => speed >= WHOLE * highest,
        false => speed < SHARED * highest,
    };
    let row = |name: &str, fits: &dyn Fn(&Slice) -> bool| {
        let rates = all.each_ref().map(|slices| {
            let fitting = slices.iter().filter(|slice| fits(slice));
            fitting.map(|slice| slice[0]).collect::<Vec<_>>()
        });
        let base = TRANSPORTS.iter().position(|it| *it == BASE).unwrap();
        let ratio = |own: usize| median(&rates[own]) / median(&rates[base]);
        let cells = rates.each_ref().map(|rates| cell(rates));
        format!(
            "| {name} | {} | {:.2}, {:.2} |",
            cells.join(" | "),
            ratio(0),
            ratio(1)
        )
    };
    let group = |name, sender, receiver| {
        row(name, &|slice| {
            is(slice[1], sender) && is(slice[2], receiver)
        })
    };
    vec![
        group("neither", true, true),
        group("the receiver's", true, false),
        group("the sender's", false, true),
        group("both", false, false),
        row("all slices", &|_| true),
    ]
}
