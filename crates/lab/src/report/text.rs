//! Writes the report as Markdown and CSV.

use super::chart::exact;
use super::figure::{by_cell, summary};
use super::judged::Report;
use crate::sample::{Sample, rounded};
use crate::verdict::{Finding, Verdict};

/// Returns the number of claims with each verdict, in one line.
pub(super) fn tally(findings: &[Finding]) -> String {
    let all = [
        Verdict::Reproduced,
        Verdict::Reversed,
        Verdict::NotSignificant,
        Verdict::NotRunnable,
    ];
    let count = |verdict: Verdict| {
        findings
            .iter()
            .filter(|finding| finding.verdict == verdict)
            .count()
    };
    all.map(|verdict| format!("{} {}", count(verdict), verdict.word()))
        .join(", ")
}

/// Formats the measured figure of a finding, with its interval.
pub(super) fn figure(finding: &Finding) -> String {
    if finding.blocks == 0 {
        return "-".to_owned();
    }
    let figure = format!(
        "{} ({} to {}) {}",
        exact(finding.estimate),
        exact(finding.interval.low),
        exact(finding.interval.high),
        finding.unit
    );
    figure.trim_end().to_owned()
}

/// Formats a p-value; a small one is shown as `<0.001`, never as zero.
pub(super) fn p(p: f64) -> String {
    match p {
        ..0.001 => "<0.001".to_owned(),
        _ => format!("{p:.3}"),
    }
}

pub(super) fn markdown(report: &Report) -> String {
    let manifest = &report.manifest;
    let machine = &manifest.machine;
    let mut text = format!(
        "# The papers' measurements, run again\n\n{}: {} claims: {}.\n\n\
         {}, {} CPUs, Linux {}, QEMU {}, {}, revision {}, scale {:?}, seed {}.\n\n{}\n\n\
         | | claim | paper | ours (95 %) | is a | blocks | p | verdict |\n|---|---|---|---|---|---|---|---|\n",
        machine.date,
        report.findings.len(),
        tally(&report.findings),
        machine.processor,
        machine.cpus,
        machine.kernel,
        machine.qemu,
        manifest.accelerator,
        machine.revision,
        manifest.scale,
        manifest.seed,
        report.noise(),
    );
    for finding in &report.findings {
        let reason = if finding.reason.is_empty() {
            String::new()
        } else {
            format!(": {}", finding.reason.replace('|', "/"))
        };
        text += &format!(
            "| {} | {} | {} | {} | {} | {} | {} | **{}**{reason} |\n",
            finding.id,
            finding.text,
            finding.paper,
            figure(finding),
            finding.kind,
            finding.blocks,
            p(finding.p),
            finding.verdict.word(),
        );
    }
    text += "\n## Experiments\n\n| | | on this host | |\n|---|---|---|---|\n";
    for (row, ability) in &report.rows {
        text += &format!(
            "| {} | {} ({}) | {} | {} |\n",
            row.id,
            row.title,
            row.source,
            ability.word(),
            ability.reason()
        );
    }
    let failed: Vec<&Sample> = report
        .samples
        .iter()
        .filter(|sample| sample.failed.is_some())
        .collect();
    if !failed.is_empty() {
        text += "\n## Cells that failed\n\n";
    }
    for sample in failed {
        let reason = sample.failed.as_deref().unwrap_or_default();
        text += &format!(
            "- {} block {}, {}: {}\n",
            sample.sweep,
            sample.block,
            sample.cell,
            reason.lines().next().unwrap_or_default()
        );
    }
    text
}

/// Returns every cell's mean and interval.
pub(super) fn csv(samples: &[Sample]) -> String {
    let mut text = "sweep,cell,metric,blocks,mean,low,high\n".to_owned();
    for ((sweep, cell, metric), figures) in by_cell(samples) {
        if let Some(point) = summary(&figures) {
            text += &format!(
                "{sweep},{cell},{metric},{},{},{},{}\n",
                figures.len(),
                rounded(point.mean),
                rounded(point.low),
                rounded(point.high)
            );
        }
    }
    text
}
