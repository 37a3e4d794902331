//! The committed rates of MPI messages, and the rows of their table in `docs/performance-mpi.md`: `scripts/bench-mpi-rate` groups them in
//! the same way.

use report::stats::median;
use serde_json::Value;

use super::results::{list, number, read};

/// Each file, with the component that matches messages in it.
const FILES: [(&str, &str); 3] = [
    ("mpi-rate.json", "plane_cm"),
    ("mpi-rate-zen4.json", "plane_pml"),
    ("mpi-rate-zen5.json", "plane_pml"),
];
const BASE: &str = "vader";

/// Parts of the highest speed: of a processor that has its core alone, at least, and of one that shares it, at most.
const WHOLE: f64 = 0.9;
const SHARED: f64 = 0.7;

/// Medians of fewer slices are not shown.
const FEWEST: usize = 20;

/// Nanoseconds in which a cache line goes from one processor to the other and back: less if they are near each other.
const NEAR: f64 = 250.0;

/// A slice: the rate, the speeds of the sender's and the receiver's processor, and their distance. Older results have no distance.
type Slice = [f64; 4];

fn slices(results: &Value, transport: &str) -> Vec<Slice> {
    let samples = list(results, "samples").iter();
    let mine = samples.filter(|sample| sample["transport"] == transport);
    let slice = |slice: &Value| {
        let [rate, sender, receiver] = [0, 1, 2].map(|at| number(slice, &format!("/{at}")));
        let distance = slice[3].as_f64().unwrap_or(f64::NAN);
        [rate, sender, receiver, distance]
    };
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

/// Returns the rows that `docs/performance-mpi.md` must contain.
pub(crate) fn rows() -> Vec<String> {
    let rows = FILES
        .iter()
        .flat_map(|(file, matching)| rows_of(file, matching));
    rows.collect()
}

fn rows_of(file: &str, matching: &str) -> Vec<String> {
    let results = read(file);
    let transports = ["plane", matching, BASE, "ucx", "mpich"];
    let all = transports.map(|transport| slices(&results, transport));
    let speeds = all.iter().flatten().flat_map(|slice| &slice[1..3]);
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
        let base = transports.iter().position(|it| *it == BASE).unwrap();
        let ratio = |own: usize| match rates[own].len().min(rates[base].len()) < FEWEST {
            true => "-".to_owned(),
            false => format!("{:.2}", median(&rates[own]) / median(&rates[base])),
        };
        let cells = rates.each_ref().map(|rates| cell(rates));
        format!(
            "| {name} | {} | {}, {} |",
            cells.join(" | "),
            ratio(0),
            ratio(1)
        )
    };
    let group = |name, sender, receiver, at: &dyn Fn(f64) -> bool| {
        row(name, &|slice| {
            is(slice[1], sender) && is(slice[2], receiver) && at(slice[3])
        })
    };
    let anywhere = |_| true;
    let whole = match all.iter().flatten().any(|slice| slice[3].is_nan()) {
        true => vec![group("neither", true, true, &anywhere)],
        false => vec![
            group("neither, near", true, true, &|distance| distance < NEAR),
            group("neither, far", true, true, &|distance| distance >= NEAR),
        ],
    };
    let others = [
        group("the receiver's", true, false, &anywhere),
        group("the sender's", false, true, &anywhere),
        group("both", false, false, &anywhere),
        row("all slices", &|_| true),
    ];
    [whole, others.to_vec()].concat()
}
