//! The result of a check, and the output of results.

use serde::Serialize;

/// The outcome of one check.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    /// What was looked at.
    pub(super) name: &'static str,
    pub(super) verdict: Verdict,
    /// What was found.
    pub(super) found: String,
    /// What to do; absent when all is well.
    pub(super) remedy: Option<String>,
    /// What it is for.
    pub(super) purpose: Purpose,
}

/// How good it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    Ok,
    /// It works, with a limit.
    Warn,
    /// It does not work without.
    Missing,
}

/// What something is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Purpose {
    /// Serving VMs.
    Serve,
    /// The VMs that are served now.
    Running,
    /// `vicinity demo`.
    Demo,
    /// `vicinity bench`.
    Bench,
}

impl Check {
    pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            found: found.into(),
            remedy: None,
            purpose: Purpose::Serve,
        }
    }

    pub(super) fn warn(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warn,
            remedy: Some(remedy.into()),
            ..Self::ok(name, found)
        }
    }

    pub(super) fn missing(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Missing,
            ..Self::warn(name, found, remedy)
        }
    }

    pub(super) fn needed_for(mut self, purpose: Purpose) -> Self {
        self.purpose = purpose;
        self
    }
}

/// Returns whether this machine can serve VMs.
pub(crate) fn can_serve(checks: &[Check]) -> bool {
    checks
        .iter()
        .all(|check| check.purpose != Purpose::Serve || check.verdict != Verdict::Missing)
}

/// Returns the checks as text: grouped by purpose, one line each, with the remedies below.
pub(crate) fn as_text(checks: &[Check]) -> String {
    let mut text = String::new();
    for (purpose, title) in [
        (Purpose::Serve, "To serve VMs:"),
        (Purpose::Running, "Networks and VMs served now:"),
        (Purpose::Demo, "For `vicinity demo`:"),
        (Purpose::Bench, "For `vicinity bench`:"),
    ] {
        text += title;
        text.push('\n');
        for check in checks.iter().filter(|check| check.purpose == purpose) {
            let word = match check.verdict {
                Verdict::Ok => "OK",
                Verdict::Warn => "WARN",
                Verdict::Missing => "MISSING",
            };
            text += &format!("  {word:<7}  {:<17}  {}\n", check.name, check.found);
            if let Some(remedy) = &check.remedy {
                text += &format!("  {:<7}  {:<17}  -> {remedy}\n", "", "");
            }
        }
    }
    text += match can_serve(checks) {
        true => "This machine can serve VMs.\n",
        false => "This machine cannot serve VMs until you install what is MISSING above.\n",
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_serving_needs_decides() {
        let qemu = || Check::missing("qemu", "none", "install it");
        assert!(!can_serve(&[Check::ok("a", "x"), qemu()]));
        assert!(can_serve(&[qemu().needed_for(Purpose::Bench)]));
        assert!(can_serve(&[Check::warn(
            "accelerator",
            "slow",
            "use another machine"
        )]));
    }

    #[test]
    fn a_remedy_stands_below_its_check() {
        let text = as_text(&[Check::missing("qemu", "not found", "apt-get install qemu")]);
        let column = " ".repeat(30);
        let expected =
            format!("  MISSING  qemu               not found\n{column}-> apt-get install qemu\n");
        assert!(text.contains(&expected), "{text}");
        assert!(text.contains("cannot serve VMs until"), "{text}");
    }
}
