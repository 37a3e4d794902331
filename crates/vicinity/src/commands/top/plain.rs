//! Formats one interval as a plain table.

use observe::report::{Host, Report, Vicinity};

use super::column::{COLUMNS, percent};
use super::matrix;
use crate::live::Live;
use crate::table::{self, Align};

/// Returns the table, with a line about the host above it, and below it what the command cannot measure.
pub(super) fn table(report: &Report) -> String {
    let mut text = format!("{}\n", host(&report.host));
    if let Some(vicinity) = &report.vicinity {
        text.push_str(&format!("{}\n", daemon(vicinity)));
    }
    text.push('\n');
    let align = |index| {
        if index == 0 {
            Align::Left
        } else {
            Align::Right
        }
    };
    let head: Vec<_> = COLUMNS
        .iter()
        .enumerate()
        .map(|(index, (_, title, _))| (*title, align(index)))
        .collect();
    let mut rows = Vec::new();
    for vm in &report.vms {
        let cells = COLUMNS.map(|(column, _, _)| column.cell(vm));
        for line in 0..2 {
            let line = cells.iter().filter_map(|cell| cell.get(line).cloned());
            rows.push(line.collect());
        }
    }
    match rows.as_slice() {
        [] => text.push_str("no VMs: no QEMU process ran for the whole interval\n"),
        rows => text.push_str(&table::format(&head, rows)),
    }
    text.push('\n');
    text.push_str(&matrix::plain(&report.pairs));
    text.push_str(&matrix::plain_switches(report.switches.as_ref()));
    for vm in &report.vms {
        for note in &vm.notes {
            text.push_str(&format!("* {}: {note}\n", vm.name));
        }
    }
    for reason in &report.cannot_read {
        text.push_str(&format!("not measured: {reason}\n"));
    }
    text
}

/// Returns the table of an interval, with its problems.
pub(super) fn live(live: &Live) -> String {
    let mut text = String::new();
    for problem in &live.problems {
        let held = problem.held(live.at);
        text.push_str(&format!("problem, for {held}: {}\n", problem.text));
        if let Some(remedy) = &problem.remedy {
            text.push_str(&format!("    {remedy}\n"));
        }
    }
    text + &table(&live.report)
}

/// Describes the host in one line.
pub(super) fn host(host: &Host) -> String {
    let known = |figure: Option<f64>, text: &dyn Fn(f64) -> String| {
        figure.map_or_else(|| "-".to_owned(), text)
    };
    let mut parts = vec![
        format!("{} CPUs", host.cpus),
        format!("busy {} %", known(host.busy, &percent)),
        format!("interrupts {} %", known(host.interrupts, &percent)),
        format!("stolen {} %", known(host.stolen, &percent)),
        format!(
            "pressure {}",
            known(host.pressure, &|p| format!("{p:.0} %"))
        ),
    ];
    if let (Some(all), Some(available)) = (host.memory, host.memory_available) {
        let used = table::bytes(all.saturating_sub(available));
        parts.push(format!("memory {used} of {}", table::bytes(all)));
    }
    if let Some(watts) = host.watts {
        parts.push(format!("{watts:.1} W {}", host.energy.label()));
    }
    parts.push(format!("this program {:.2} %", host.own * 100.0));
    parts.join(" · ")
}

/// Describes the daemon in one line.
pub(super) fn daemon(vicinity: &Vicinity) -> String {
    let mut parts = vec![format!(
        "vicinity {} · supervisor {} %",
        vicinity.pid,
        percent(vicinity.supervisor.r#use)
    )];
    for network in &vicinity.networks {
        parts.push(format!(
            "{} {} %, not charged to a VM {} %",
            network.name,
            percent(network.workers.r#use),
            percent(network.uncharged)
        ));
    }
    parts.join(" · ")
}
