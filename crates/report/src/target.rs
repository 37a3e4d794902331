//! Targets of figures, and whether the figures reach them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A target and the measured value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The figure that the target is about.
    pub name: String,
    /// The value that the figure must reach.
    pub bound: f64,
    /// Whether the bound is a lower one; otherwise it is an upper one.
    pub at_least: bool,
    /// The measured value.
    pub measured: f64,
    /// Whether the target was reached.
    pub reached: bool,
}

impl Target {
    /// Returns a target that the figure is at least `bound`.
    #[must_use]
    pub fn at_least(name: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self {
            name: name.into(),
            bound,
            at_least: true,
            measured,
            reached: measured >= bound,
        }
    }

    /// Returns a target that the figure is at most `bound`.
    #[must_use]
    pub fn at_most(name: impl Into<String>, measured: f64, bound: f64) -> Self {
        Self {
            at_least: false,
            reached: measured <= bound,
            ..Self::at_least(name, measured, bound)
        }
    }

    /// Writes targets as lines.
    ///
    /// # Errors
    /// `f` fails.
    pub fn write_all(f: &mut fmt::Formatter<'_>, all: &[Self]) -> fmt::Result {
        all.iter().try_for_each(|target| write!(f, "{target}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.reached {
            true => "reached",
            false => "NOT REACHED",
        };
        let bound = match self.at_least {
            true => "at least",
            false => "at most",
        };
        let (name, measured, value) = (&self.name, self.measured, self.bound);
        writeln!(f, "{word:11}  {name}: {measured:.2} ({bound} {value:.2})")
    }
}
