//! Writes the demo's result as files: `result.json`, and `report.html`, one page that needs no network
//! and has a light and a dark style.

mod strip;

use std::fs;
use std::path::Path;

use crate::metric::{METRICS, Metric};
use crate::result::{DemoResult, Summary, Verdict};
use report::html::{self, escape};
use strip::Row;
use vm_harness::accel::Accel;
use vm_harness::error::{Context, Result};

/// Writes `result.json` and `report.html` into `folder`.
///
/// # Errors
/// The folder cannot be written.
pub(crate) fn write(result: &DemoResult, folder: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(result).context(|| "describe the result".to_owned())?;
    for (name, text) in [("result.json", json), ("report.html", page(result))] {
        let path = folder.join(name);
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn page(result: &DemoResult) -> String {
    let cards: String = METRICS
        .iter()
        .zip(&result.summary)
        .map(|(m, s)| card(result, m, s))
        .collect();
    let body = format!(
        "<h1>Vicinity: two VMs on one host</h1>{}<div class=\"grid\">{cards}</div>{}{}{}",
        introduction(result),
        table(result),
        explanation(result),
        machine(result),
    );
    html::page("Vicinity demo", html::STYLE, &body)
}

fn introduction(result: &DemoResult) -> String {
    let [base, other] = &result.channels;
    let rounds = result.samples.len() / 2;
    format!(
        "<p class=\"soft\">{date} · {rounds} rounds · {seconds:.0} s</p>\
         <p>Two virtual machines with unmodified Debian kernels talked to each other over two \
         channels: <b>{}</b> ({}) and <b>{}</b> ({}). Each dot is one round; the bar is the \
         median; a thin line joins what was measured in the same round.</p>",
        escape(&base.name),
        escape(&base.description),
        escape(&other.name),
        escape(&other.description),
        date = escape(&result.machine.date),
        seconds = result.seconds,
    )
}

fn card(result: &DemoResult, metric: &Metric, summary: &Summary) -> String {
    let [base, other] = &result.channels;
    let (a, b) = (result.values(base, metric), result.values(other, metric));
    let (base, other) = (escape(&base.name), escape(&other.name));
    let rows = [
        Row {
            name: &base,
            values: &a,
        },
        Row {
            name: &other,
            values: &b,
        },
    ];
    let way = metric.better();
    format!(
        "<section class=\"card\"><h3>{}, {}{}</h3><p>{} <b>Better: {way}.</b></p>{}</section>",
        metric.title,
        metric.unit,
        chip(summary, &other),
        metric.meaning,
        strip::plot(&rows, metric.unit, metric.digits),
    )
}

/// Formats the ratio and the verdict of a metric in a few words.
fn chip(summary: &Summary, other: &str) -> String {
    let (Some(ratio), Some(verdict)) = (summary.ratio, summary.verdict()) else {
        return String::new();
    };
    let (class, word) = match verdict {
        Verdict::Better => ("good", "better"),
        Verdict::Worse => ("bad", "worse"),
        Verdict::Unclear => ("even", "unclear"),
    };
    format!(
        "<span class=\"chip {class}\">{other} ×{:.2}, {word}</span>",
        ratio.median
    )
}

fn table(result: &DemoResult) -> String {
    let [base, other] = &result.channels;
    let lines: String = METRICS.iter().zip(&result.summary).map(|(metric, line)| {
        let digits = metric.digits;
        let (ratio, better) = (line.ratio_text(), metric.better());
        format!(
            "<tr><td>{}</td><td>{:.digits$}</td><td>{:.digits$}</td><td class=\"words\">{}</td><td>{ratio}</td><td class=\"words\">{better}</td></tr>",
            metric.title, line.base_median, line.other_median, metric.unit
        )
    }).collect();
    format!(
        "<h2>Medians</h2><div class=\"scroll\"><table><tr><th></th><th>{a}</th><th>{b}</th><th class=\"words\">unit</th><th>{b} / {a}</th><th class=\"words\">better is</th></tr>{lines}</table></div>\
         <p class=\"soft\">The ratio is the median of the rounds' own ratios, with their quartiles; the channels differ clearly where both quartiles are on the same side of one. What slows a whole round down slows both channels and cancels out, so it may differ a little from the quotient of the two medians.</p>{}",
        samples(result),
        a = escape(&base.name),
        b = escape(&other.name),
    )
}

fn samples(result: &DemoResult) -> String {
    let head: String = METRICS
        .iter()
        .map(|m| format!("<th>{}, {}</th>", m.title, m.unit))
        .collect();
    let lines: String = result
        .samples
        .iter()
        .map(|sample| {
            let cells: String = METRICS
                .iter()
                .map(|m| format!("<td>{:.*}</td>", m.digits, (m.of)(sample)))
                .collect();
            let order = if sample.first { "first" } else { "second" };
            format!(
                "<tr><td>{} {} ({order})</td>{cells}</tr>",
                sample.round,
                escape(&sample.channel)
            )
        })
        .collect();
    format!(
        "<details><summary>Every sample</summary><div class=\"scroll\"><table><tr><th>round</th>{head}</tr>{lines}</table></div></details>"
    )
}

fn explanation(result: &DemoResult) -> String {
    let time = result.durations;
    let accel = match result.accelerator {
        Accel::Kvm => {
            "<p>The guests ran under KVM: the processor itself ran their instructions.</p>"
        }
        Accel::Tcg => {
            "<p>KVM does not work on this host, so QEMU <b>emulated</b> the guests' processors (TCG). \
            A guest is then 10 to 20 times slower than on real hardware, and most of the time goes into \
            emulating the guests' own network stacks, not into the channel. Do not read the figures as what \
             Vicinity or a bridge can do: only the <b>ratio</b> of the two channels says something, and it says it \
             about emulated guests. On a host with KVM the guests are faster, and the baseline is another one \
             where the kernel's vhost-net carries the bridge's frames; run the demo there to know.</p>"
        }
    };
    format!(
        "<h2>How it was measured</h2><p>Each VM had one NIC on each channel (stock virtio-net; on <b>direct</b>, the channel's own module), so both channels \
         were measured in the same VMs in the same run. In every round each workload ran over one channel and then \
         directly over the other ({} s of TCP, {} s of UDP, {} s of round trips); the channel that went first \
         changed from round to round. The machine's other work slows both alike.</p>\
         <p><b>Host CPU.</b> {}</p>{accel}",
        time.tcp,
        time.udp,
        time.round_trip,
        escape(&result.cpu_definition),
    )
}

fn machine(result: &DemoResult) -> String {
    let m = &result.machine;
    let cpus = format!("{}, {} usable", m.processor, m.cpus);
    let memory = format!("{} MiB", m.memory_mib);
    let rows = [
        ("Processor", cpus.as_str()),
        ("Memory", &memory),
        ("System", &m.system),
        ("Host kernel", &m.kernel),
        ("Guest kernel", &result.guest_kernel),
        ("QEMU", &m.qemu),
        ("Accelerator", result.accelerator.title()),
        ("Revision", &m.revision),
    ];
    let rows: String = rows
        .iter()
        .map(|(key, value)| format!("<dt>{key}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<h2>Where</h2><dl>{rows}</dl>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::example;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = page(&example());
        for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<svg").count(), METRICS.len());
    }

    #[test]
    fn names_cannot_break_the_page() {
        assert!(page(&example()).contains("what bridge &lt;is&gt;"));
    }

    #[test]
    fn the_verdict_is_on_the_card() {
        let page = page(&example());
        let good = page.matches("class=\"chip good\">switch ×").count();
        assert_eq!(good, METRICS.iter().filter(|m| m.has_ratio).count());
    }
}
