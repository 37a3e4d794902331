//! Computes the verdict on each claim, corrected for all claims of a run.

use serde::{Deserialize, Serialize};

use super::catalogue::{self, Experiment, Scale, Sweep};
use super::claim::{Claim, Evidence, Statistic};
use super::probe::{Ability, Probe};
use super::sample::Sample;
use report::inference::{self, Interval, Region};

/// Verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Verdict {
    /// The figure is in the region of the paper's claim.
    Reproduced,
    /// The figure is significantly outside that region.
    Reversed,
    /// Neither of the two is significant.
    NotSignificant,
    /// The claim was not measured.
    NotRunnable,
}

/// A claim with its verdict.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The experiment's id.
    pub id: &'static str,
    /// The claim.
    pub text: &'static str,
    /// The paper's number.
    pub paper: &'static str,
    /// The measured figure; NaN if nothing was measured.
    pub estimate: f64,
    /// Its bootstrapped 95 % interval.
    pub interval: Interval,
    /// Blocks with a figure.
    pub blocks: usize,
    /// p-value, corrected for all claims of the run (Holm).
    pub p: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason, if the figures do not show it.
    pub reason: String,
    /// The quantities that the figure compares, for the reader of the report.
    pub kind: &'static str,
    /// Unit of the figure; empty for a ratio.
    pub unit: &'static str,
}

/// Name of the sweep that is the A/A run.
pub const NOISE: &str = "noise";

/// Significance level for all claims together.
const LEVEL: f64 = 0.05;

impl Verdict {
    /// Returns the word for the report.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reproduced => "REPRODUCED",
            Self::Reversed => "REVERSED",
            Self::NotSignificant => "NOT SIGNIFICANT",
            Self::NotRunnable => "NOT RUNNABLE",
        }
    }
}

/// Returns the ratio of the two arms of the A/A run, which shows the spread of a ratio when nothing differs.
#[must_use]
pub fn noise(samples: &[Sample], scale: Scale) -> Evidence {
    let statistic = Statistic::Ratio {
        metric: "mbit_s",
        of: &[("arm", "b")],
        to: &[("arm", "a")],
    };
    let claim = Claim {
        text: "",
        paper: "",
        statistic,
        expects: Region::Within(0.9, 1.1),
    };
    evaluate(NOISE, &claim, samples, scale)
}

/// Returns the largest logarithm of a ratio that the noise explains: the end of the interval of the
/// A/A run. NaN without an A/A run.
#[must_use]
pub fn noise_threshold(noise: &Evidence) -> f64 {
    let Interval { low, high } = noise.interval;
    low.ln().abs().max(high.ln().abs())
}

/// Judges every claim of these experiments.
#[must_use]
pub fn judge(
    rows: &[&'static Experiment],
    samples: &[Sample],
    scale: Scale,
    probe: &Probe,
) -> Vec<Finding> {
    let claims: Vec<(&Experiment, &Claim, Evidence)> = rows
        .iter()
        .flat_map(|row| {
            row.claims
                .iter()
                .map(|claim| (*row, claim, evaluate(row.sweep, claim, samples, scale)))
        })
        .collect();
    let raw: Vec<f64> = claims
        .iter()
        .filter(|(.., evidence)| evidence.blocks > 0)
        .map(|(.., evidence)| evidence.p_values.p())
        .collect();
    let mut corrected = inference::holm(&raw).into_iter();
    let noise = noise_threshold(&noise(samples, scale));
    claims
        .into_iter()
        .map(|(row, claim, evidence)| {
            let p = if evidence.blocks > 0 {
                corrected.next().unwrap_or(1.0)
            } else {
                1.0
            };
            let (verdict, mut reason) = decide(row, claim, &evidence, p, noise, samples, probe);
            if evidence.undefined > 0 {
                let both = if reason.is_empty() { "" } else { "; " };
                reason += &format!("{both}{}", undefined(claim.statistic, evidence.undefined));
            }
            Finding {
                id: row.id,
                text: claim.text,
                paper: claim.paper,
                estimate: evidence.estimate,
                interval: evidence.interval,
                blocks: evidence.blocks,
                p,
                verdict,
                reason,
                kind: kind(claim.statistic),
                unit: unit(claim.statistic),
            }
        })
        .collect()
}

fn decide(
    row: &Experiment,
    claim: &Claim,
    evidence: &Evidence,
    p: f64,
    noise: f64,
    samples: &[Sample],
    probe: &Probe,
) -> (Verdict, String) {
    if evidence.blocks == 0 && evidence.undefined > 0 {
        return (Verdict::NotSignificant, String::new());
    }
    if evidence.blocks == 0 {
        let failure = samples
            .iter()
            .filter(|sample| sample.sweep == row.sweep)
            .find_map(|sample| sample.failed.clone());
        let reason = match (probe.judge(row), failure) {
            (Ability::NotRunnable(why), _) => why,
            (_, Some(why)) => format!(
                "its cells failed: {}",
                why.lines().next().unwrap_or_default()
            ),
            _ => "not measured: not part of the run, or its time was used up".to_owned(),
        };
        return (Verdict::NotRunnable, reason);
    }
    if p >= LEVEL {
        return (Verdict::NotSignificant, side_of_interval(claim, evidence));
    }
    // An effect that is no larger than that of the A/A run is noise.
    let about_one = matches!(claim.expects, Region::Above(x) | Region::Below(x) if x == 1.0);
    if matches!(claim.statistic, Statistic::Ratio { .. })
        && about_one
        && evidence.estimate.ln().abs() <= noise
    {
        return (
            Verdict::NotSignificant,
            "no larger than what the A/A run shows for no reason".to_owned(),
        );
    }
    let verdict = if evidence.p_values.supports_region() {
        Verdict::Reproduced
    } else {
        Verdict::Reversed
    };
    (verdict, String::new())
}

/// Returns the reason why this number of blocks yields no figure although all of their cells were measured.
fn undefined(statistic: Statistic, blocks: usize) -> String {
    let why = match statistic {
        Statistic::Trend { .. } | Statistic::Correlation { .. } => {
            "what it ranks was alike everywhere"
        }
        _ => "a side of its quotient was 0",
    };
    let which = match blocks {
        1 => "a block gives".to_owned(),
        _ => format!("{blocks} blocks give"),
    };
    format!("{which} no figure: {why}")
}

/// For a figure that is not significant, returns the side of the region on which its interval is; empty if the
/// interval is on both sides.
fn side_of_interval(claim: &Claim, evidence: &Evidence) -> String {
    let blocks = evidence.blocks;
    if blocks < 3 {
        return format!("only {blocks} of 3 blocks");
    }
    let Interval { low, high } = evidence.interval;
    let inside = claim.expects.contains(low) && claim.expects.contains(high);
    let outside = match claim.expects {
        Region::Above(bound) => high <= bound,
        Region::Below(bound) => low >= bound,
        Region::Within(from, to) => high <= from || low >= to,
    };
    let way = match (inside, outside) {
        (true, _) => "for",
        (_, true) => "against",
        _ => return String::new(),
    };
    format!("the interval speaks {way} it, but {blocks} blocks do not make it sure")
}

/// Returns the unit of a claim's figure. Quotients and ranks have none.
fn unit(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Value { metric, .. }
        | Statistic::Difference { metric, .. }
        | Statistic::Gap { metric, .. }
        | Statistic::FirstStep { metric, .. } => catalogue::metric(metric).1,
        Statistic::Crossover { .. } => "B",
        _ => "",
    }
}

const fn kind(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Ratio { .. } | Statistic::Metrics { .. } => "ratio",
        Statistic::Relative { .. } | Statistic::Growth { .. } => "ratio of ratios",
        Statistic::Difference { .. } | Statistic::Gap { .. } => "difference",
        Statistic::Value { .. } => "value",
        Statistic::Trend { .. } | Statistic::Correlation { .. } => "rank correlation",
        Statistic::FirstStep { .. } => "first step minus the next largest",
        Statistic::LeastStep { .. } => "least step, as a ratio",
        Statistic::Decline { .. } => "last over largest",
        Statistic::Crossover { .. } => "size",
        Statistic::Shift { .. } => "ratio of sizes",
    }
}

fn evaluate(sweep: &str, claim: &Claim, samples: &[Sample], scale: Scale) -> Evidence {
    let of_sweep: Vec<Sample> = samples
        .iter()
        .filter(|sample| sample.sweep == sweep && sample.failed.is_none())
        .filter(|sample| is_papers_server(sample))
        .cloned()
        .collect();
    claim.evaluate(&of_sweep, &|factor| levels(sweep, factor, scale))
}

/// The papers' claims are about Apache httpd; the report shows other servers beside it.
fn is_papers_server(sample: &Sample) -> bool {
    let server = sample.cell.0.get("server");
    server.is_none_or(|server| server == "httpd")
}

fn levels(sweep: &str, factor: &str, scale: Scale) -> Vec<String> {
    let found = catalogue::sweep(sweep).and_then(|sweep| sweep.factor(factor));
    found.map_or_else(Vec::new, |factor| {
        factor
            .levels(scale)
            .iter()
            .map(|level| (*level).to_owned())
            .collect()
    })
}

/// Whether the interval of every ratio in the claims about this sweep is within 3 %, so that more blocks would not
/// change the verdict.
#[must_use]
pub fn is_tight(sweep: &Sweep, samples: &[Sample], scale: Scale) -> bool {
    let claims = catalogue::all()
        .filter(|row| row.sweep == sweep.name)
        .flat_map(|row| row.claims);
    let mut widths = claims
        .filter(|claim| {
            matches!(
                claim.statistic,
                Statistic::Ratio { .. } | Statistic::Crossover { .. }
            )
        })
        .map(|claim| {
            let Interval { low, high } = evaluate(sweep.name, claim, samples, scale).interval;
            (high / low).ln() / 2.0
        });
    widths.all(|width| width <= 0.03)
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
