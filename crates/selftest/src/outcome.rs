//! What a check found: a verdict, figures and notes.

use serde::{Deserialize, Serialize};

/// The verdict on a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The host does what the check shows.
    Pass,
    /// The host does not do what the check shows.
    Fail,
    /// The check has figures, and no bound that they must reach.
    Measured,
    /// The check did not run, for the reason that the entry gives.
    NotRun,
}

impl Verdict {
    /// Returns the verdict as people read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Pass => "PASS",
            Self::Fail => "FAIL",
            Self::Measured => "MEASURED",
            Self::NotRun => "NOT RUN",
        }
    }
}

/// A figure of a check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub name: String,
    /// The value, with three digits after the point at most.
    pub value: f64,
    /// The unit, as the field writes it; empty for a ratio or a number of things.
    pub unit: String,
}

impl Figure {
    /// Returns a figure. A value that is no number, as the median of no samples, becomes -1, because JSON has no
    /// other form of it.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Self {
        let finite = if value.is_finite() { value } else { -1.0 };
        Self {
            name: name.into(),
            value: (finite * 1000.0).round() / 1000.0,
            unit: unit.to_owned(),
        }
    }

    /// Returns the value with as many digits as are useful, and the unit.
    #[must_use]
    pub fn text(&self) -> String {
        let digits = match self.value.abs() {
            value if (value - value.round()).abs() < 1e-9 || value >= 100.0 => 0,
            value if value >= 10.0 => 1,
            _ => 2,
        };
        let value = format!("{:.digits$}", self.value);
        format!("{value} {}", self.unit).trim_end().to_owned()
    }
}

/// The outcome of a check that ran.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// Why the check failed or did not run.
    pub reason: Option<String>,
    /// What was measured.
    pub figures: Vec<Figure>,
    /// Observations in words.
    pub notes: Vec<String>,
}

impl Outcome {
    fn new(verdict: Verdict, reason: Option<String>) -> Self {
        Self {
            verdict,
            reason,
            figures: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Returns that the host does what the check shows.
    #[must_use]
    pub fn pass() -> Self {
        Self::new(Verdict::Pass, None)
    }

    /// Returns that the host does not do what the check shows.
    #[must_use]
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::new(Verdict::Fail, Some(reason.into()))
    }

    /// Returns that figures without a bound follow.
    #[must_use]
    pub fn measured() -> Self {
        Self::new(Verdict::Measured, None)
    }

    /// Returns that the check cannot run here.
    #[must_use]
    pub fn not_run(reason: impl Into<String>) -> Self {
        Self::new(Verdict::NotRun, Some(reason.into()))
    }

    /// Adds a figure.
    #[must_use]
    pub fn figure(mut self, name: impl Into<String>, value: f64, unit: &str) -> Self {
        self.figures.push(Figure::new(name, value, unit));
        self
    }

    /// Adds a note.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// Turns the outcome into a failure with this reason, unless `good`; figures and notes stay.
    #[must_use]
    pub fn require(mut self, good: bool, reason: impl FnOnce() -> String) -> Self {
        if !good && self.verdict != Verdict::Fail {
            self.verdict = Verdict::Fail;
            self.reason = Some(reason());
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_useful_digits() {
        for (value, text) in [
            (3.0, "3 s"),
            (0.987_654, "0.99 s"),
            (12.34, "12.3 s"),
            (1234.56, "1235 s"),
        ] {
            assert_eq!(Figure::new("x", value, "s").text(), text);
        }
        assert_eq!(Figure::new("x", f64::NAN, "").text(), "-1");
    }

    #[test]
    fn the_first_reason_of_a_failure_stays() {
        let outcome = Outcome::pass()
            .require(true, || "a".to_owned())
            .require(false, || "b".to_owned())
            .require(false, || "c".to_owned());
        assert_eq!(outcome, Outcome::fail("b"));
    }
}
