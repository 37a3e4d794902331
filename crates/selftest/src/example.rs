//! A report for unit tests.

use crate::document::{Report, SCHEMA, SCHEMA_VERSION};
use crate::entry::Entry;
use crate::host::Host;
use crate::outcome::{Figure, Verdict};

/// Returns a report with one check of each verdict.
pub(crate) fn report() -> Report {
    let entry = |id: &str, verdict, reason: Option<&str>, figures| Entry {
        id: id.to_owned(),
        title: format!("The check {id}"),
        shows: "that <it> works".to_owned(),
        verdict,
        reason: reason.map(str::to_owned),
        figures,
        notes: vec!["a note".to_owned()],
        seconds: 1.5,
    };
    Report {
        schema: SCHEMA.to_owned(),
        schema_version: SCHEMA_VERSION,
        version: "0.1.0".to_owned(),
        date: "2026-01-01T00:00:00Z".to_owned(),
        seconds: 300.5,
        accelerator: "tcg".to_owned(),
        accelerator_reason: Some("there is no /dev/kvm".to_owned()),
        guest_kernel: Some("6.1.0".to_owned()),
        host: Host {
            processor: "x".to_owned(),
            ..Host::default()
        },
        checks: vec![
            entry(
                "a",
                Verdict::Pass,
                None,
                vec![Figure::new("boot", 12.25, "s")],
            ),
            entry("b", Verdict::Fail, Some("it <broke>"), Vec::new()),
            entry(
                "c",
                Verdict::Measured,
                None,
                vec![Figure::new("ratio", 0.1 + 0.2, "")],
            ),
            entry("d", Verdict::NotRun, Some("no KVM"), Vec::new()),
        ],
        interrupted: false,
    }
}
