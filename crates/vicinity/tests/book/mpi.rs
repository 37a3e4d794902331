//! The committed results of MPI, and the rows of the tables in `docs/performance-mpi.md` made from them.

use report::stats::{median, paired_ratio};
use serde_json::Value;

use super::results::{list, number, read};

/// The figures of the table, with their names and units.
const PAIR: [(&str, u64, &str); 7] = [
    ("latency", 8, "µs"),
    ("latency", 64, "µs"),
    ("latency", 1024, "µs"),
    ("latency", 4096, "µs"),
    ("bandwidth", 65536, "MB/s"),
    ("bandwidth", 1 << 20, "MB/s"),
    ("rate", 8, "1/s"),
];
const COLLECTIVE: [(&str, u64, &str); 4] = [
    ("alltoall", 8, "µs"),
    ("allreduce", 8, "µs"),
    ("alltoall", 4096, "µs"),
    ("allreduce", 4096, "µs"),
];

/// Returns the values of the rounds, and the median of their ratios to those of `base`.
fn cell(of: &dyn Fn(&str) -> Vec<f64>, transport: &str, base: &str) -> (f64, f64) {
    let (own, base) = (of(transport), of(base));
    (median(&own), paired_ratio(&base, &own))
}

fn digits(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn row(figure: (&str, u64, &str), values: &[f64], ratios: &[f64]) -> String {
    let (name, bytes, unit) = figure;
    let cells: Vec<_> = values
        .iter()
        .map(|value| format!("{} {unit}", digits(*value)))
        .collect();
    let ratios = ratios.iter().map(|ratio| match *ratio < 0.1 {
        true => format!("{ratio:.3}"),
        false => format!("{ratio:.2}"),
    });
    let ratios: Vec<_> = ratios.collect();
    let (cells, ratios) = (cells.join(" | "), ratios.join(", "));
    format!("| {name}, {bytes} B | {cells} | {ratios} |")
}

/// Processes of a host over these transports: the ratios are those of each `own` to `base`.
fn native(
    file: &str,
    figures: &[(&str, u64, &str)],
    transports: &[&str],
    own: &[&str],
    base: &str,
) -> Vec<String> {
    let results = read(file);
    let rows = figures.iter().map(|figure| {
        let of = |transport: &str| -> Vec<f64> {
            let samples = list(&results, "samples").iter();
            let mine = samples.filter(|sample| sample["transport"] == transport);
            let key = format!("{} {}", figure.0, figure.1);
            let mut mine: Vec<_> = mine.collect();
            mine.sort_by_key(|sample| sample["round"].as_u64());
            mine.iter()
                .map(|it| it["figures"][&key].as_f64().unwrap())
                .collect()
        };
        let values: Vec<_> = transports
            .iter()
            .map(|transport| cell(&of, transport, base).0)
            .collect();
        let ratios: Vec<_> = own.iter().map(|it| cell(&of, it, base).1).collect();
        row(*figure, &values, &ratios)
    });
    rows.collect()
}

/// Microseconds of a message of 8 B between CPUs that are near each other, at most, on Zen 4 and Zen 5.
const NEAR: f64 = 0.22;

/// Processes of a host whose CPUs were near each other, and far from each other, as each job's own latency of 8 B shows it. The
/// ratios are those of the medians, to `vader`. `matching` is the component that matches messages: `plane_pml`, or before, `plane_cm`.
fn by_distance(file: &str, matching: &str) -> Vec<String> {
    let results = read(file);
    let transports = ["plane", matching, "vader", "two_copies", "ucx"];
    let places = [("near", true), ("far", false)].map(|(place, near)| {
        let of = |transport: &str, figure: (&str, u64, &str)| -> Vec<f64> {
            let samples = list(&results, "samples").iter();
            let mine = samples.filter(|sample| sample["transport"] == transport);
            let here = mine.filter(|sample| (number(sample, "/figures/latency 8") < NEAR) == near);
            let key = format!("/figures/{} {}", figure.0, figure.1);
            here.map(|sample| number(sample, &key)).collect()
        };
        let jobs = transports.map(|transport| of(transport, PAIR[0]).len().to_string());
        let head = format!("| {place}, jobs | {} |", jobs.join(" | "));
        let figures = PAIR.iter().map(|figure| {
            let medians = transports.map(|transport| median(&of(transport, *figure)));
            let [plane, other, vader, ..] = medians;
            let text = row(*figure, &medians, &[plane / vader, other / vader]);
            format!("| {place}, {}", text.trim_start_matches("| "))
        });
        std::iter::once(head).chain(figures).collect::<Vec<_>>()
    });
    places.concat()
}

/// VMs: the ratios are those to TCP.
fn vms() -> Vec<String> {
    let results = read("mpi-vms-zen5.json");
    let figures = PAIR.iter().chain(&COLLECTIVE);
    let rows = figures.map(|figure| {
        let of = |over: &str| -> Vec<f64> {
            let samples = list(&results, "samples").iter();
            let mut mine: Vec<_> = samples.filter(|sample| sample["over"] == over).collect();
            mine.sort_by_key(|sample| sample["round"].as_u64());
            let is = |it: &&Value| it["name"] == figure.0 && it["bytes"] == figure.1;
            let value = |sample: &&Value| {
                number(list(sample, "figures").iter().find(is).unwrap(), "/value")
            };
            mine.iter().map(value).collect()
        };
        let cells = ["plane", "plane_pml", "tcp"].map(|over| cell(&of, over, "tcp"));
        let [plane, pml, _] = cells.map(|(_, ratio)| ratio);
        row(*figure, &cells.map(|(value, _)| value), &[plane, pml])
    });
    rows.collect()
}

/// Hosts that the message plane does not connect: TCP with the component and without it.
fn hosts() -> Vec<String> {
    let results = read("mpi-hosts.json");
    assert_eq!(number(&results, "/instructions/component"), 0.0);
    let rows = list(&results, "rows").iter().map(|row| {
        let name = row[0].as_str().unwrap();
        let [with, without] = [1, 2].map(|at| digits(row[at].as_f64().unwrap()));
        let [ratio, low, high] = [3, 4, 5].map(|at| row[at].as_f64().unwrap());
        format!("| {name} | {with} µs | {without} µs | {ratio:.4} | {low:.4} to {high:.4} |")
    });
    rows.collect()
}

/// Ranks that serve an interface.
fn interfaces(file: &str, matching: &str, figures: &[(&str, u64, &str)]) -> Vec<String> {
    let transports = ["plane", matching, "tcp"];
    native(file, figures, &transports, &transports[..2], "tcp")
}

/// Returns the rows that `docs/performance-mpi.md` must contain.
pub(crate) fn rows() -> Vec<String> {
    let shared_memory = ["plane", "vader", "two_copies", "ucx", "mpich", "tcp"];
    let over_tcp = ["plane", "vader", "tcp"];
    let provider = ["mpich_plane", "mpich"];
    let both = ["plane", "plane_cm"];
    let with_cm = [&both[..], &shared_memory[1..]].concat();
    [
        native("mpi.json", &PAIR, &with_cm, &both, "vader"),
        native("mpi.json", &COLLECTIVE, &over_tcp, &["plane"], "tcp"),
        native("mpi.json", &PAIR, &provider, &["mpich_plane"], "mpich"),
        by_distance("mpi-zen4.json", "plane_pml"),
        by_distance("mpi-zen5.json", "plane_pml"),
        native("mpi-intel.json", &PAIR, &with_cm, &both, "vader"),
        interfaces("mpi-interfaces.json", "plane_cm", &PAIR),
        interfaces("mpi-interfaces.json", "plane_cm", &COLLECTIVE),
        interfaces("mpi-interfaces-amd.json", "plane_cm", &PAIR),
        interfaces("mpi-interfaces-amd.json", "plane_cm", &COLLECTIVE),
        interfaces("mpi-interfaces-datagrams-zen5.json", "plane_pml", &PAIR),
        interfaces(
            "mpi-interfaces-datagrams-zen5.json",
            "plane_pml",
            &COLLECTIVE,
        ),
        interfaces("mpi-interfaces-own-reception-amd.json", "plane_cm", &PAIR),
        interfaces(
            "mpi-interfaces-own-reception-amd.json",
            "plane_cm",
            &COLLECTIVE,
        ),
        hosts(),
        vms(),
    ]
    .concat()
}
