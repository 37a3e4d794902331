//! The types of the catalogue's rows.

use report::inference::Region;

use crate::claim::{Claim, Statistic};
use crate::sample::Selector;

/// A row of the catalogue.
#[derive(Debug)]
pub struct Experiment {
    /// `X1` to `X15`: channels (paper 000). `M2` to `M7`: the direct channel (paper 002). `W1` to `W27`: web
    /// workloads (paper 001). `N1` to `N9`: computing and sending in one VM (paper 003).
    pub id: &'static str,
    /// Figure or table of the paper.
    pub source: &'static str,
    /// Title.
    pub title: &'static str,
    /// Name of the sweep whose samples the experiment uses; empty if there is none yet.
    pub sweep: &'static str,
    /// Requirements on the host.
    pub needs: &'static [Requirement],
    /// Plots.
    pub figures: &'static [Figure],
    /// The paper's claims.
    pub claims: &'static [Claim],
}

impl Experiment {
    /// An empty row, for struct updates.
    pub(super) const EMPTY: Self = Self {
        id: "",
        source: "",
        title: "",
        sweep: "",
        needs: &[],
        figures: &[],
        claims: &[],
    };
}

/// A requirement of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// Number of CPUs that the run may use.
    Cpus(usize),
    /// A second host. A network namespace behind a shaped link emulates it.
    SecondHost,
    /// Number of CPUs on which virtual CPUs and backend run apart. On a host with fewer CPUs they share them.
    Spread(usize),
    /// CPU weights and caps by cgroup.
    Groups,
    /// The tools and headers with which the harness builds the direct channel's module.
    Module,
    /// Measurement of energy. The experiments use CPU time as a substitute.
    Energy,
    /// A part that no host has yet; the text gives the reason.
    Absent(&'static str),
}

/// A plot: metrics over the levels of one factor, a curve for each metric and each combination
/// of the levels of others.
#[derive(Debug)]
pub struct Figure {
    /// Number of the figure in the paper.
    pub source: &'static str,
    /// Title.
    pub title: &'static str,
    /// The factor on the horizontal axis.
    pub x: &'static str,
    /// The factors whose levels each have a curve.
    pub series: &'static [&'static str],
    /// The cells of the plot.
    pub of: Selector,
    /// Keys of the metrics.
    pub metrics: &'static [&'static str],
    /// The paper's own numbers, if it gives any.
    pub paper: &'static [Curve],
}

impl Figure {
    /// An empty plot, for struct updates.
    pub(super) const EMPTY: Self = Self {
        source: "",
        title: "",
        x: "",
        series: &[],
        of: &[],
        metrics: &[],
        paper: &[],
    };
}

/// A curve of a paper.
#[derive(Debug)]
pub struct Curve {
    /// Name.
    pub name: &'static str,
    /// Level on the horizontal axis and value.
    pub points: &'static [(&'static str, f64)],
}

/// Two CPUs are required; with three, each of two VMs has a CPU of its own and the backend has the third, as in the
/// paper.
pub(super) const SEPARATE_CPUS: &[Requirement] = &[Requirement::Cpus(2), Requirement::Spread(3)];

pub(super) const fn claim(
    text: &'static str,
    paper: &'static str,
    statistic: Statistic,
    expects: Region,
) -> Claim {
    Claim {
        text,
        paper,
        statistic,
        expects,
    }
}

pub(super) const fn ratio(metric: &'static str, of: Selector, to: Selector) -> Statistic {
    Statistic::Ratio { metric, of, to }
}

pub(super) const fn difference(metric: &'static str, of: Selector, to: Selector) -> Statistic {
    Statistic::Difference { metric, of, to }
}

pub(super) const fn trend(metric: &'static str, of: Selector, along: &'static str) -> Statistic {
    Statistic::Trend { metric, of, along }
}

pub(super) const fn value(metric: &'static str, of: Selector) -> Statistic {
    Statistic::Value { metric, of }
}
