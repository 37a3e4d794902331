//! The committed results in `docs/results`, and the rows of the documents' tables made from them.

use std::process::Command;

use report::stats::median;
use serde_json::Value;

use crate::common::root;

/// Returns a result file of `docs/results`. Calls gzip(1), which every Debian system has, so no crate is needed.
pub(crate) fn read(name: &str) -> Value {
    let path = root().join("docs/results").join(format!("{name}.gz"));
    let mut command = Command::new("gzip");
    let output = command.args(["-d", "-c"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Returns the number at this pointer (RFC 6901).
pub(crate) fn number(value: &Value, pointer: &str) -> f64 {
    let found = value.pointer(pointer).and_then(Value::as_f64);
    found.unwrap_or_else(|| panic!("no number at {pointer}: {value}"))
}

/// Returns the elements of the list `key`.
pub(crate) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap()
}

/// Returns the median over all rounds of a figure of TCP between two VMs on this channel.
pub(crate) fn tcp(channel: &str, key: &str) -> f64 {
    let results = read("message-vms.json");
    let rounds = list(&results, "samples").iter();
    let cells = rounds.flat_map(|round| list(round, "tcp"));
    let cells = cells.filter(|cell| cell["channel"] == channel);
    let values: Vec<_> = cells.map(|cell| cell[key].as_f64().unwrap()).collect();
    median(&values)
}

/// Returns a number with a comma between thousands.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let (head, tail) = digits.split_at(digits.len().saturating_sub(3));
    match head {
        "" => tail.to_owned(),
        _ => format!("{head},{tail}"),
    }
}

/// Returns frames a second and cycles a frame of one switch, in the format of the tables.
fn frames(figures: &Value, decimals: usize) -> String {
    let millions = number(figures, "/frames_per_s") / 1e6;
    let cycles = grouped(number(figures, "/cycles_per_frame"));
    format!("{millions:.decimals$} M, {cycles} cycles")
}

fn ratios(of: &Value) -> String {
    let [frames, cycles] = ["/frames_ratio", "/cycles_ratio"].map(|key| number(of, key));
    format!("{frames:.2} | {cycles:.2}")
}

/// Returns the texts that `docs/performance.md` must contain for these results.
pub(crate) fn of_the_data_path() -> Vec<String> {
    let mut said = Vec::new();
    for it in list(&read("switch.json"), "comparisons") {
        let [ours, theirs] = ["vicinity", "ovs_dpdk"].map(|key| frames(&it[key], 1));
        said.push(format!(
            "| {} B | {ours} | {theirs} | {} |",
            it["size"],
            ratios(it)
        ));
    }
    for it in list(&read("frames.json"), "comparisons") {
        let [ovs, testpmd] = [0, 1].map(|peer| &it["peers"][peer]);
        assert_eq!(
            [&ovs["switch"], &testpmd["switch"]],
            ["ovs-dpdk", "testpmd"]
        );
        let all = [&it["vicinity"], &ovs["figures"], &testpmd["figures"]];
        let all = all.map(|figures| frames(figures, 1)).join(" | ");
        said.push(format!("| {} B | {all} | {} |", it["size"], ratios(ovs)));
    }
    for it in list(&read("frames64.json"), "comparisons") {
        let [ours, ovs] = [&it["vicinity"], &it["peers"][0]["figures"]];
        said.push(format!(
            "{:.1} M frames/s with {:.0} cycles a frame, OVS-DPDK {:.1} M with {:.0}: {}",
            number(ours, "/frames_per_s") / 1e6,
            number(ours, "/cycles_per_frame"),
            number(ovs, "/frames_per_s") / 1e6,
            number(ovs, "/cycles_per_frame"),
            ratios(&it["peers"][0]).replace(" | ", " and "),
        ));
    }
    said.extend(of_the_loads());
    said
}

/// Returns those texts for the results of several pairs of ports, latency, segmentation and
/// destinations.
fn of_the_loads() -> Vec<String> {
    let results = read("loads.json");
    let mut said = Vec::new();
    for it in list(&results, "comparisons") {
        let [size, pairs] = ["size", "pairs"].map(|key| &it[key]);
        let both = [&it["vicinity"], &it["peers"][0]["figures"]];
        let both = both.map(|figures| frames(figures, 1)).join(" | ");
        said.push(format!(
            "| {size} B, {pairs} | {both} | {} |",
            ratios(&it["peers"][0])
        ));
    }
    let cell = |cell: &Value, switch: &str| {
        let mut all = list(&results, "loads").iter();
        let found = all.find(|it| it["cell"] == *cell && it["switch"] == switch);
        found.map(|it| it["figures"].clone())
    };
    for load in [10, 50, 90] {
        let load = serde_json::json!({ "latency": load });
        let both = ["vicinity", "ovs-dpdk"].map(|switch| {
            let figures = cell(&load, switch).unwrap();
            let p99 = grouped(number(&figures, "/p99_ns") / 1e3);
            let core = number(&figures, "/core_share") * 100.0;
            let p50 = number(&figures, "/p50_ns") / 1e3;
            format!("{p50:.1} µs, {p99} µs, {core:.0} %")
        });
        said.push(format!("| {} |", both.join(" | ")));
    }
    let gso = ["vicinity", "ovs-dpdk"].map(|switch| cell(&"gso".into(), switch).unwrap());
    let gso = gso.map(|figures| frames(&figures, 2)).join(" | ");
    said.push(format!("| 64 KB GSO, 1 | {gso} |"));
    for it in list(&results, "loads") {
        if let Some(known) = it["cell"].pointer("/residents/known") {
            let asked = number(&it["cell"], "/residents/spoken_to");
            let cycles = number(&it["figures"], "/cycles_per_frame");
            let turns = if asked > 98.0 { ", in turn" } else { "" };
            let known = grouped(known.as_f64().unwrap());
            said.push(format!(
                "| {} of {known} known{turns} | {cycles:.0} |",
                grouped(asked)
            ));
        }
    }
    said
}

/// Returns the texts that `docs/performance-space.md` must contain for a space's server compared with
/// nginx.
pub(crate) fn of_the_spaces() -> Vec<String> {
    let results = read("space.json");
    let lengths = ["4 KB", "64 KB", "1 MB", "16 MB"];
    let rows = lengths
        .iter()
        .zip(list(&results, "cells"))
        .map(|(length, it)| {
            let both = ["vicinity", "nginx"].map(|server| match *length {
                "4 KB" => {
                    let requests = number(&it[server], "/requests_per_s");
                    format!("{} requests/s", grouped(requests))
                }
                _ => format!("{:.2} GB/s", number(&it[server], "/bytes_per_s") / 1e9),
            });
            format!(
                "| {length} | {} | {:.2} |",
                both.join(" | "),
                number(it, "/ratio")
            )
        });
    rows.collect()
}

/// Returns the texts that `docs/performance.md` must contain for TCP between two VMs.
pub(crate) fn of_two_vms() -> Vec<String> {
    let rows = [
        ("TCP throughput", "mb_s", "MB/s"),
        ("round trip, 64 B", "round_trip_us", "µs"),
    ];
    let rows = rows.map(|(name, key, unit)| {
        let [bridge, switch] = ["bridge", "switch"].map(|channel| tcp(channel, key));
        let ratio = switch / bridge;
        format!("| {name} | {bridge:.0} {unit} | {switch:.0} {unit} | {ratio:.2} |")
    });
    rows.to_vec()
}

/// Returns the texts that `docs/performance-messages.md` must contain for TCP between two VMs, and
/// for the link.
pub(crate) fn of_the_messages() -> Vec<String> {
    let mut said = Vec::new();
    for (name, channel) in [("tap + bridge", "bridge"), ("switch", "switch")] {
        let [round_trip, rate] = ["round_trip_us", "mb_s"].map(|key| tcp(channel, key));
        said.push(format!(
            "| TCP, {name} | {round_trip:.0} µs | {rate:.0} MB/s |"
        ));
    }
    for it in list(&read("uplink.json"), "cells") {
        let rate = number(it, "/rate") / 1e3;
        said.push(format!(
            "| {rate} Gbit/s | {:.2} (",
            number(it, "/messages")
        ));
    }
    said
}

/// Returns the texts that the README must contain for the data path and for TCP between two VMs.
pub(crate) fn of_the_readme() -> Vec<String> {
    let results = read("switch.json");
    let mut said: Vec<_> = list(&results, "comparisons")
        .iter()
        .filter(|it| it["size"] == 64)
        .map(|it| {
            let [frames, cycles] = ["/frames_ratio", "/cycles_ratio"].map(|key| number(it, key));
            format!("{frames:.1} times as many frames as OVS-DPDK, with {cycles:.2} of the cycles")
        })
        .collect();
    let [rate, round_trip] =
        ["mb_s", "round_trip_us"].map(|key| tcp("switch", key) / tcp("bridge", key));
    said.push(format!(
        "{rate:.2} times the throughput of tap and bridge and {round_trip:.2} of the round trip"
    ));
    said
}
