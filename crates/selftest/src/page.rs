//! The report as an HTML page, which needs no other file and no network.

use report::html::{self, escape};

use crate::document::{JSON, Report};
use crate::entry::Entry;
use crate::outcome::Verdict;

/// Rules beside those of every page.
const STYLE: &str = "
main{max-width:1180px}
.checks td{white-space:normal;text-align:left;vertical-align:top;padding:12px}
.checks th{text-align:left}
.checks td.time,.checks th.time{text-align:right;white-space:nowrap;color:var(--soft)}
.checks td p{margin:0;font-size:.88rem;color:var(--soft);max-width:60ch}
.checks td p.reason{color:var(--bad);white-space:pre-wrap;overflow-wrap:anywhere}
.checks td p.why{color:var(--ink)}
.checks b{font-weight:600}
.checks code,.id{font:.82rem ui-monospace,\"DejaVu Sans Mono\",monospace;color:var(--soft)}
.figures{display:grid;grid-template-columns:1fr max-content;gap:1px 14px;margin:0;font-size:.88rem;min-width:250px}
.figures dt{color:var(--soft)}.figures dd{text-align:right;font-weight:600;overflow-wrap:normal}
.checks ul{margin:6px 0 0;padding-left:1.1em;font-size:.88rem;max-width:60ch;overflow-wrap:anywhere}
.even{box-shadow:inset 0 0 0 1px var(--line)}
p code,li code,b code{font-size:.9em}
.counts{display:flex;flex-wrap:wrap;gap:8px;margin:14px 0 18px}
";

/// Returns the page.
pub(crate) fn page(report: &Report) -> String {
    let body = format!(
        "<h1>Vicinity self-test</h1>{}{}{}{}",
        introduction(report),
        checks(report),
        host(report),
        closing(),
    );
    let style = format!("{}{STYLE}", html::STYLE);
    html::page("Vicinity self-test", &style, &body)
}

fn introduction(report: &Report) -> String {
    let failed = match report.count(Verdict::Fail) {
        0 => "even",
        _ => "bad",
    };
    let chips: String = [
        Verdict::Pass,
        Verdict::Fail,
        Verdict::Measured,
        Verdict::NotRun,
    ]
    .into_iter()
    .map(|verdict| format!("{} {}", report.count(verdict), verdict.word()))
    .zip(["good", failed, "even", "even"])
    .map(|(text, class)| format!("<span class=\"chip {class}\">{text}</span>"))
    .collect();
    let accelerator = match (report.accelerator.as_str(), &report.accelerator_reason) {
        ("kvm", _) => {
            "The guests ran under <b>KVM</b>: the processor itself ran their instructions."
                .to_owned()
        }
        ("tcg", reason) => {
            let reason = reason.as_deref().unwrap_or("the reason is not known");
            format!(
                "QEMU <b>emulated</b> the guests (TCG), 10 to 20 times slower than KVM, because KVM was not used: {}. \
                 The times and rates below say nothing about a host with KVM.",
                marked(reason)
            )
        }
        _ => "No VM was booted.".to_owned(),
    };
    let ended = match report.interrupted {
        true => "<p><b>The user or a signal interrupted the self-test.</b></p>",
        false => "",
    };
    format!(
        "<p class=\"soft\">{} · version {} · {:.0} s</p><div class=\"counts\">{chips}</div><p>{accelerator}</p>{ended}",
        escape(&report.date),
        escape(&report.version),
        report.seconds
    )
}

fn checks(report: &Report) -> String {
    let rows: String = report.checks.iter().map(row).collect();
    format!(
        "<h2>Checks</h2><div class=\"scroll\"><table class=\"checks\"><tr><th>verdict</th><th>check</th>\
         <th>figures</th><th class=\"time\">time</th></tr>{rows}</table></div>"
    )
}

fn row(entry: &Entry) -> String {
    let class = match entry.verdict {
        Verdict::Pass => "good",
        Verdict::Fail => "bad",
        Verdict::Measured | Verdict::NotRun => "even",
    };
    let reason = entry.reason.as_ref().map_or_else(String::new, |reason| {
        let class = match entry.verdict {
            Verdict::Fail => "reason",
            _ => "why",
        };
        format!("<p class=\"{class}\">{}</p>", escape(reason))
    });
    let notes: String = entry
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>", marked(note)))
        .collect();
    let notes = match notes.is_empty() {
        true => notes,
        false => format!("<ul>{notes}</ul>"),
    };
    let figures: String = entry
        .figures
        .iter()
        .map(|figure| {
            format!(
                "<dt>{}</dt><dd>{}</dd>",
                escape(&figure.name),
                escape(&figure.text())
            )
        })
        .collect();
    let figures = match figures.is_empty() {
        true => String::new(),
        false => format!("<dl class=\"figures\">{figures}</dl>"),
    };
    format!(
        "<tr><td><span class=\"chip {class}\">{}</span></td><td><b>{}</b> <span class=\"id\">{}</span>\
         <p>{}</p>{reason}{notes}</td><td>{figures}</td><td class=\"time\">{:.1} s</td></tr>",
        entry.verdict.word(),
        marked(&entry.title),
        escape(&entry.id),
        marked(&entry.shows),
        entry.seconds
    )
}

/// Escapes a text, and marks what is between two backticks as code.
fn marked(text: &str) -> String {
    let escaped = escape(text);
    if escaped.matches('`').count() % 2 == 1 {
        return escaped;
    }
    let parts = escaped.split('`').enumerate();
    let marked = parts.map(|(number, part)| match number % 2 {
        1 => format!("<code>{part}</code>"),
        _ => part.to_owned(),
    });
    marked.collect()
}

fn host(report: &Report) -> String {
    let mut rows = report.host.rows();
    let guest = report
        .guest_kernel
        .clone()
        .unwrap_or_else(|| "-".to_owned());
    rows.push(("Guests' kernel", guest));
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("<dt>{name}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<h2>Host</h2><dl>{rows}</dl>")
}

fn closing() -> String {
    format!(
        "<h2>Send it</h2><p>Attach <code>{JSON}</code> to an issue, also if all is well: it has the same content. Names \
         of the host and of users, their folders, MAC addresses and IP addresses have been removed; read the file \
         before you send it.</p>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::report;

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows() {
        let page = page(&report());
        for outside in ["http:", "https:", "src=", "<script", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("it &lt;broke&gt;") && page.contains("that &lt;it&gt; works"));
    }

    #[test]
    fn backticks_mark_code() {
        assert_eq!(marked("`a<b` c"), "<code>a&lt;b</code> c");
        assert_eq!(marked("a ` b"), "a ` b");
    }

    #[test]
    fn every_verdict_is_shown() {
        let page = page(&report());
        for word in [
            "good\">PASS",
            "bad\">FAIL",
            "even\">MEASURED",
            "even\">NOT RUN",
            "1 NOT RUN",
        ] {
            assert!(page.contains(word), "{word}");
        }
        assert!(page.contains("<dt>boot</dt><dd>12.2 s</dd>") || page.contains("<dd>12.3 s</dd>"));
    }
}
