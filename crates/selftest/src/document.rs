//! The report: what the self-test found.

use serde::{Deserialize, Serialize};
use vm_harness::error::{Error, Result};

use crate::entry::Entry;
use crate::host::Host;
use crate::outcome::Verdict;
use crate::privacy::Redactor;

/// The name of the schema.
pub const SCHEMA: &str = "vicinity-selftest";

/// The version of the schema. A new field keeps it; a field that changes its meaning or goes raises it.
pub const SCHEMA_VERSION: u32 = 1;

/// The file for programs in the output folder.
pub const JSON: &str = "selftest.json";
/// The page for people.
pub const HTML: &str = "selftest.html";

/// What the self-test found. docs/selftest.md describes the fields for readers of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The version of Vicinity.
    pub version: String,
    /// When the self-test began: UTC, RFC 3339.
    pub date: String,
    /// How long it took, seconds.
    pub seconds: f64,
    /// `kvm`, `tcg`, or `none` if no VM was booted.
    pub accelerator: String,
    /// Why KVM was not used.
    pub accelerator_reason: Option<String>,
    /// The release of the guests' kernel, if an image was built.
    pub guest_kernel: Option<String>,
    /// Facts about the host.
    pub host: Host,
    /// Every check, in the order in which they ran.
    pub checks: Vec<Entry>,
    /// Whether a signal ended the self-test early.
    pub interrupted: bool,
}

impl Report {
    /// Returns how many checks have a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let with = self.checks.iter().filter(|check| check.verdict == verdict);
        with.count()
    }

    /// Returns the counts in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let count = |verdict| self.count(verdict);
        format!(
            "{} passed, {} failed, {} measured, {} not run",
            count(Verdict::Pass),
            count(Verdict::Fail),
            count(Verdict::Measured),
            count(Verdict::NotRun)
        )
    }

    /// Returns the report without what identifies the host or its users.
    ///
    /// # Errors
    /// The report has no JSON form.
    pub fn redacted(&self, redactor: &Redactor) -> Result<Self> {
        let unreadable =
            |error: serde_json::Error| Error::unreadable("the report", &error.to_string());
        let mut value = serde_json::to_value(self).map_err(unreadable)?;
        redactor.value(&mut value);
        serde_json::from_value(value).map_err(unreadable)
    }
}

#[cfg(test)]
mod tests {
    use crate::example::report;

    #[test]
    fn the_summary_counts_every_check() {
        assert_eq!(
            report().summary(),
            "1 passed, 1 failed, 1 measured, 1 not run"
        );
    }
}
