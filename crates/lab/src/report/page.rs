//! Writes the report as one HTML page that needs no other file and no network.

use super::chart;
use super::figure;
use super::judged::Report;
use super::text::{self, tally};
use report::html::{self, escape};

use crate::catalogue::{self, Experiment, Figure};
use crate::probe::Ability;
use crate::verdict::Verdict;

/// Styles of the report, in addition to the common ones.
const STYLE: &str = include_str!("study.css");

pub(super) fn page(report: &Report) -> String {
    let rows: String = report
        .rows
        .iter()
        .map(|(row, ability)| experiment(report, row, ability))
        .collect();
    let body = format!(
        "<h1>The papers' measurements, run again</h1>{}{}{rows}",
        head(report),
        verdicts(report),
    );
    let style = [html::STYLE, STYLE].concat();
    html::page("Vicinity lab", &style, &body)
}

fn head(report: &Report) -> String {
    let (manifest, machine) = (&report.manifest, &report.manifest.machine);
    let facts = [
        (
            "Machine",
            format!(
                "{}, {} CPUs, {} MiB",
                machine.processor, machine.cpus, machine.memory_mib
            ),
        ),
        (
            "System",
            format!("{}, Linux {}", machine.system, machine.kernel),
        ),
        (
            "VMs",
            format!(
                "QEMU {}, {}, guests with Linux {}",
                machine.qemu, manifest.accelerator, manifest.guest_kernel
            ),
        ),
        ("Channels", manifest.channels.join("; ")),
        ("Weights and caps", manifest.control_groups.clone()),
        ("Switches between VMs", manifest.switches.clone()),
        ("Revision", machine.revision.clone()),
        (
            "Scale and seed",
            format!("{:?}, {}", manifest.scale, manifest.seed),
        ),
        ("Noise", report.noise()),
    ];
    let list: String = facts
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!(
        "<p class=\"soft\">{}</p><p>Paper 000 is <i>Residency Aware Inter-VM Communication in Virtualized Cloud</i> (2013, XenLoop on Xen), \
         paper 001 is <i>Performance Analysis of Network I/O Workloads in Virtualized Data Centers</i> (2010, Xen); paper 002 is <i>MMNet</i>, whose channel is our <b>direct</b>; paper 003 is <i>MemNet</i> (N1 to N9), whose transmission module is our <b>space</b>. Their native channel is our \
         <b>bridge</b>, their shared memory channel our <b>switch</b>, their Dom0 our <b>backend</b>. What counts is the shape of a figure, \
         not its height: neither the machines nor the hypervisor are the same. A dot is a mean over blocks, its bar the bootstrapped 95 % interval.</p>\
         <dl>{list}</dl><p><b>{} claims: {}.</b></p>",
        escape(&machine.date),
        report.findings.len(),
        tally(&report.findings),
    )
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "good",
        Verdict::Reversed => "bad",
        Verdict::NotSignificant | Verdict::NotRunnable => "even",
    }
}

fn verdicts(report: &Report) -> String {
    let line = |finding: &crate::verdict::Finding| {
        format!(
            "<tr><td><a href=\"#{id}\">{id}</a></td><td class=\"words\">{}</td><td class=\"words\">{}</td><td>{}</td><td class=\"words\">{}</td><td>{}</td><td>{}</td><td class=\"words\"><span class=\"chip {}\">{}</span><br><small>{}</small></td></tr>",
            escape(finding.text),
            escape(finding.paper),
            text::figure(finding),
            finding.kind,
            finding.blocks,
            text::p(finding.p),
            class(finding.verdict),
            finding.verdict.word(),
            escape(&finding.reason),
            id = finding.id,
        )
    };
    let lines: String = report.findings.iter().map(line).collect();
    format!(
        "<h2>Verdicts</h2><div class=\"scroll claims\"><table><tr><th></th><th class=\"words\">claim</th><th class=\"words\">paper</th><th>ours (95 %)</th><th class=\"words\">is a</th><th>blocks</th><th>p</th><th class=\"words\">verdict</th></tr>{lines}</table></div>\
         <p class=\"soft\">p is corrected for all claims of the run (Holm) and compared with 0.05. Cells are compared within a block only.</p>"
    )
}

fn channels() -> String {
    let rows = [
        ("IVC", "user", "TCP, UDP", "no", "-"),
        ("XenSocket", "below socket", "TCP", "yes", "-"),
        ("XWAY", "below socket", "TCP", "yes", "user"),
        ("MMNet", "below IP", "TCP, UDP", "no", "user, kernel"),
        ("XenLoop", "below IP", "TCP, UDP", "yes", "user, kernel"),
        (
            "Vicinity: bridge (tap)",
            "device",
            "all",
            "yes",
            "user, kernel, hypervisor",
        ),
        (
            "Vicinity: switch (vhost-user)",
            "device",
            "all",
            "yes",
            "user, kernel, hypervisor",
        ),
        (
            "Vicinity: direct (shared memory)",
            "device",
            "all",
            "yes",
            "user, hypervisor",
        ),
        (
            "Vicinity: messages (shared memory)",
            "user",
            "messages (MX)",
            "yes",
            "kernel, hypervisor",
        ),
    ];
    let lines: String = rows
        .iter()
        .map(|(name, layer, protocols, open, transparent)| format!("<tr><td>{name}</td><td class=\"words\">{layer}</td><td class=\"words\">{protocols}</td><td class=\"words\">{open}</td><td class=\"words\">{transparent}</td></tr>"))
        .collect();
    format!(
        "<div class=\"scroll\"><table><tr><th></th><th class=\"words\">layer</th><th class=\"words\">protocols</th><th class=\"words\">open source</th><th class=\"words\">nothing changed in</th></tr>{lines}</table></div>"
    )
}

fn experiment(report: &Report, row: &'static Experiment, ability: &Ability) -> String {
    let figures: String = row
        .figures
        .iter()
        .map(|figure| plots(report, row, figure))
        .collect();
    let claims: String = report
        .findings
        .iter()
        .filter(|finding| finding.id == row.id)
        .map(|finding| format!("<li><span class=\"chip {}\">{}</span> {} <span class=\"soft\">Paper: {}. Ours: {}.</span></li>", class(finding.verdict), finding.verdict.word(), escape(finding.text), escape(finding.paper), text::figure(finding)))
        .collect();
    let figures = match row.id {
        "X0" => channels(),
        _ => figures,
    };
    let reason = if ability.reason().is_empty() {
        String::new()
    } else {
        format!(": {}", escape(ability.reason()))
    };
    format!(
        "<section id=\"{id}\"><h2>{id}. {}</h2><p class=\"soft\">Paper {}, {}. <b>{}</b>{reason}</p><ul class=\"claims\">{claims}</ul>{figures}</section>",
        escape(row.title),
        paper(row.id),
        row.source,
        ability.word(),
        id = row.id,
    )
}

/// Returns the text in place of a plot, if the paper gives no numbers.
fn without_numbers(source: &str) -> &'static str {
    match source.starts_with("Fig") || source.starts_with("Table") {
        true => {
            "The paper shows a curve and gives no numbers in its text; the claims above say which way it goes."
        }
        false => "The paper says it in its text, without a figure.",
    }
}

/// Returns the paper of an experiment.
fn paper(id: &str) -> &'static str {
    match id.as_bytes().first() {
        Some(b'X') => "000",
        Some(b'M') => "002",
        Some(b'N') => "003",
        _ => "001",
    }
}

/// Draws the measured plot, and the paper's plot beside it.
fn plots(report: &Report, row: &Experiment, figure: &Figure) -> String {
    let Some(sweep) = catalogue::sweep(row.sweep) else {
        return String::new();
    };
    let unit = figure
        .metrics
        .first()
        .map_or("", |metric| catalogue::metric(metric).1);
    let (levels, curves) =
        figure::measured_curves(figure, sweep, &report.samples, report.manifest.scale);
    let measured = curves
        .iter()
        .any(|one| one.points.iter().any(Option::is_some));
    let ours = match measured {
        true => chart::draw(&levels, &curves, &[], figure.x, unit),
        false => "<p class=\"none\">not measured in this run</p>".to_owned(),
    };
    let (their_levels, series) = figure::paper_curves(figure);
    // Some of the paper's plots have another factor on the horizontal axis.
    let same = their_levels.iter().any(|level| levels.contains(level));
    let x = if same { figure.x } else { "" };
    let theirs = match series.is_empty() {
        false => {
            let colours = figure::colours(&series, &curves);
            chart::draw(&their_levels, &series, &colours, x, unit)
        }
        true => format!("<p class=\"none\">{}</p>", without_numbers(figure.source)),
    };
    format!(
        "<div class=\"grid pair\"><div class=\"card\"><h3>{}</h3><p>ours, {}</p>{ours}</div><div class=\"card\"><h3>{}</h3><p>the paper's</p>{theirs}</div></div>",
        escape(figure.title),
        escape(sweep.title),
        figure.source,
    )
}
