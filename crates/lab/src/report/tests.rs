//! Tests the report with artificial samples.

use super::*;
use crate::catalogue::{self, Experiment, Scale};
use crate::manifest::Manifest;
use crate::probe::Probe;
use crate::run;
use crate::sample::Sample;
use crate::verdict;
use vm_harness::machine::Machine;

/// Returns a run that measured every cell of every sweep.
fn example() -> Report {
    let manifest = Manifest {
        machine: Machine::describe().unwrap(),
        experiments: catalogue::all().map(|row| row.id.to_owned()).collect(),
        only: Default::default(),
        scale: Scale::Ci,
        seed: 1,
        budget_s: 1.0,
        accelerator: "TCG <b>".into(),
        channels: vec!["bridge".into()],
        control_groups: String::new(),
        switches: String::new(),
        guest_kernel: "6.1".into(),
        image: "x".into(),
        cpu_flags: String::new(),
        mitigations: Vec::new(),
    };
    let mut samples = Vec::new();
    for sweep in catalogue::sweeps() {
        let sets = sweep.sets.iter().flat_map(|set| {
            ["use_pct", "wait_pct", "block_pct", "exec_s", "us_exec"]
                .map(|key| format!("{set}_{key}"))
        });
        let keys: Vec<String> = sweep
            .metrics
            .iter()
            .map(|key| (*key).to_owned())
            .chain(sets)
            .chain(sweep.metrics.iter().map(|key| format!("run1_{key}")))
            .chain(sweep.metrics.iter().map(|key| format!("ms100_{key}")))
            .collect();
        for (place, cell) in (1..).zip(run::cells(sweep, Scale::Ci)) {
            let values = keys
                .iter()
                .map(|key| (key.clone(), f64::from(place)))
                .collect();
            samples.push(Sample {
                sweep: sweep.name.to_owned(),
                block: 1,
                cell,
                values,
                failed: None,
                line_ns: None,
                at: 0.0,
            });
        }
    }
    let probe = Probe {
        cpus: 2,
        no_vms: None,
        groups: Ok("v1"),
        no_module: None,
        versions: String::new(),
    };
    let rows: Vec<&'static Experiment> = catalogue::all().collect();
    let findings = verdict::judge(&rows, &samples, Scale::Ci, &probe);
    Report {
        manifest,
        samples,
        rows: rows
            .into_iter()
            .map(|row| (row, probe.judge(row)))
            .collect(),
        findings,
    }
}

#[test]
fn every_row_and_every_figure_is_on_the_page() {
    let report = example();
    let page = page::page(&report);
    for row in catalogue::all() {
        assert!(
            page.contains(&format!("<section id=\"{}\">", row.id)),
            "{}",
            row.id
        );
    }
    let figures: usize = catalogue::all().map(|row| row.figures.len()).sum();
    assert_eq!(page.matches("<p>ours, ").count(), figures);
    assert_eq!(page.matches("not measured in this run").count(), 0);
    assert!(page.contains("TCG &lt;b&gt;") && !page.contains("NaN"));
    for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn the_texts_have_every_claim_and_every_cell() {
    let report = example();
    let markdown = text::markdown(&report);
    assert!(
        report
            .findings
            .iter()
            .all(|finding| markdown.contains(finding.text))
    );
    let cells = text::csv(&report.samples);
    let figures: usize = report
        .samples
        .iter()
        .map(|sample| sample.values.len())
        .sum();
    assert_eq!(cells.lines().count(), figures + 1);
}

#[test]
fn two_runs_differ_where_their_intervals_do() {
    let one = example();
    let mut other = one.samples.clone();
    let changed = other.first_mut().unwrap();
    changed.values.values_mut().for_each(|value| *value *= 2.0);
    let count = changed.values.len();
    let found = compare::compare(&one.samples, &other);
    assert_eq!(found.differ.len(), count);
    assert!(found.to_string().contains(&format!("{count} differ")));
    assert!(
        compare::compare(&one.samples, &one.samples)
            .differ
            .is_empty()
    );
}
