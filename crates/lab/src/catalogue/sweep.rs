//! Sweeps: the cells that are measured, and the metrics of their samples.

/// The scale of a run.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Takes some minutes, and shows that everything works, and large effects.
    Ci,
    /// Takes about an hour and a half.
    Default,
    /// Takes a night.
    Full,
}

/// A factor of an experiment.
#[derive(Debug)]
pub struct Factor {
    /// Name.
    pub name: &'static str,
    /// Levels at the scale `ci`, in order.
    pub ci: &'static [&'static str],
    /// Levels at the scale `default`.
    pub default: &'static [&'static str],
    /// Levels at the scale `full`.
    pub full: &'static [&'static str],
}

/// Cells that are measured together, in random order within each block.
#[derive(Debug)]
pub struct Sweep {
    /// Name.
    pub name: &'static str,
    /// Description in one line.
    pub title: &'static str,
    /// The factors that are varied.
    pub factors: &'static [Factor],
    /// Keys of the metrics in its samples, except those of the thread sets.
    pub metrics: &'static [&'static str],
    /// The thread sets whose scheduler statistics are in its samples.
    pub sets: &'static [&'static str],
    /// Relative time of a cell, 1 for a stream. The run divides its time among sweeps in proportion to this.
    pub cost: f64,
}

/// Metrics of each thread set.
const OF_SETS: [&str; 5] = ["use_pct", "wait_pct", "block_pct", "exec_s", "us_exec"];

impl Factor {
    /// Returns the levels at a scale, in order.
    #[must_use]
    pub const fn levels(&self, scale: Scale) -> &'static [&'static str] {
        match scale {
            Scale::Ci => self.ci,
            Scale::Default => self.default,
            Scale::Full => self.full,
        }
    }
}

impl Sweep {
    /// Whether its samples have this metric.
    #[must_use]
    pub fn gives(&self, key: &str) -> bool {
        let of_set = |set: &&str| {
            let rest = key
                .strip_prefix(*set)
                .and_then(|rest| rest.strip_prefix('_'));
            rest.is_some_and(|rest| OF_SETS.contains(&rest))
        };
        self.metrics.contains(&key) || self.sets.iter().any(of_set)
    }

    /// Returns the factor of this name.
    #[must_use]
    pub fn factor(&self, name: &str) -> Option<&'static Factor> {
        self.factors.iter().find(|factor| factor.name == name)
    }
}

/// Returns a factor with the same levels at every scale.
pub(super) const fn fixed(name: &'static str, levels: &'static [&'static str]) -> Factor {
    Factor {
        name,
        ci: levels,
        default: levels,
        full: levels,
    }
}
