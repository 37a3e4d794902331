//! Computes the curves of a figure from samples.

use std::collections::{BTreeMap, BTreeSet};

use super::series::{Point, Series};
use crate::catalogue::{self, Factor, Figure, Scale, Sweep};
use crate::sample::{Cell, Sample};
use report::inference;

/// Returns the measured curves: one for each combination of the figure's factors and each metric, without the levels
/// and curves that the run did not measure.
pub(super) fn measured_curves(
    figure: &Figure,
    sweep: &Sweep,
    samples: &[Sample],
    scale: Scale,
) -> (Vec<String>, Vec<Series>) {
    let factor = sweep.factor(figure.x);
    let levels: Vec<String> = match factor {
        Some(factor) => factor
            .levels(scale)
            .iter()
            .map(|level| (*level).to_owned())
            .collect(),
        None => steps(figure, sweep, samples),
    };
    let mut series = Vec::new();
    for metric in figure.metrics {
        for combination in combinations(figure, sweep, scale) {
            let points = levels.iter().map(|level| {
                let mut at: Vec<(&str, &str)> = combination.clone();
                at.extend(figure.of.iter().copied());
                match factor {
                    Some(_) => {
                        at.push((figure.x, level));
                        point(metric, &at, sweep.name, samples)
                    }
                    None => point(&of_step(figure, metric, level), &at, sweep.name, samples),
                }
            });
            let mut name: Vec<String> = combination
                .iter()
                .map(|(factor, level)| label(factor, level))
                .collect();
            if figure.metrics.len() > 1 {
                name.insert(0, short(metric, figure.metrics));
            }
            series.push(Series {
                name: name.join(", "),
                points: points.collect(),
            });
        }
    }
    for one in &mut series {
        if one.name.is_empty() {
            one.name = "ours".to_owned();
        }
    }
    measured(levels, series)
}

/// Returns the curves that have figures, over the levels that have figures.
fn measured(mut levels: Vec<String>, mut series: Vec<Series>) -> (Vec<String>, Vec<Series>) {
    let has = |place: usize| {
        let mut points = series.iter().filter_map(|one| one.points.get(place));
        points.any(Option::is_some)
    };
    let kept: Vec<bool> = (0..levels.len()).map(has).collect();
    keep(&mut levels, &kept);
    for one in &mut series {
        keep(&mut one.points, &kept);
    }
    series.retain(|one| one.points.iter().any(Option::is_some));
    (levels, series)
}

fn keep<T>(list: &mut Vec<T>, kept: &[bool]) {
    let mut kept = kept.iter();
    list.retain(|_| kept.next().copied().unwrap_or(false));
}

/// Returns the distinguishing name of a metric in a figure: the thread set, if the metrics differ only in that.
fn short(metric: &str, all: &[&str]) -> String {
    let parts = |key: &str| {
        let (set, rest) = key.split_once('_')?;
        let known = catalogue::SETS.contains(&set);
        known.then(|| (set.to_owned(), rest.to_owned()))
    };
    let rest = |key: &str| parts(key).map(|(_, rest)| rest);
    let same = all.iter().all(|other| rest(other) == rest(metric));
    match parts(metric).filter(|_| same) {
        Some((set, _)) => set,
        None => catalogue::metric(metric).0,
    }
}

/// Returns the steps for which the samples have figures. A step is a run or a point in time, if the samples of a cell
/// have figures of several runs or over time.
fn steps(figure: &Figure, sweep: &Sweep, samples: &[Sample]) -> Vec<String> {
    let of_sweep = samples.iter().filter(|sample| sample.sweep == sweep.name);
    let keys = of_sweep.flat_map(|sample| sample.values.keys());
    let number = |key: &String| -> Option<u32> {
        let (step, metric) = key.strip_prefix(figure.x)?.split_once('_')?;
        figure
            .metrics
            .contains(&metric)
            .then_some(step)?
            .parse()
            .ok()
    };
    let numbers: BTreeSet<u32> = keys.filter_map(number).collect();
    numbers.iter().map(u32::to_string).collect()
}

/// Returns the key of a metric at one step.
fn of_step(figure: &Figure, metric: &str, step: &str) -> String {
    format!("{}{step}_{metric}", figure.x)
}

/// Returns the paper's curves.
pub(super) fn paper_curves(figure: &Figure) -> (Vec<String>, Vec<Series>) {
    let mut levels: Vec<String> = Vec::new();
    for (level, _) in figure.paper.iter().flat_map(|curve| curve.points) {
        if !levels.iter().any(|known| known == level) {
            levels.push((*level).to_owned());
        }
    }
    let series = figure.paper.iter().map(|curve| {
        let at = |level: &String| {
            curve
                .points
                .iter()
                .find(|(known, _)| known == level)
                .map(|(_, value)| Point {
                    mean: *value,
                    low: *value,
                    high: *value,
                })
        };
        Series {
            name: curve.name.to_owned(),
            points: levels.iter().map(at).collect(),
        }
    });
    let series = series.collect();
    (levels, series)
}

/// Colours for the paper's curves: those of the measured curves with the same names.
pub(super) fn colours(theirs: &[Series], ours: &[Series]) -> Vec<usize> {
    // Text in brackets is a remark and not part of the name.
    let plain = |name: &str| name.split(" (").next().unwrap_or(name).to_lowercase();
    let same = |one: &Series| {
        let mut names = ours.iter().map(|other| plain(&other.name));
        names.position(|name| name == plain(&one.name))
    };
    let known: Vec<Option<usize>> = theirs.iter().map(same).collect();
    let mut free = (0..).filter(|number| !known.contains(&Some(*number)));
    let colours = known.iter().map(|known| known.or_else(|| free.next()));
    colours.map(|colour| colour.unwrap_or(0)).collect()
}

/// Returns every combination of the levels of the factors that make a curve.
fn combinations(
    figure: &Figure,
    sweep: &Sweep,
    scale: Scale,
) -> Vec<Vec<(&'static str, &'static str)>> {
    let mut found = vec![Vec::new()];
    let named = figure.series.iter().filter_map(|name| sweep.factor(name));
    for factor in servers(figure, sweep, scale).into_iter().chain(named) {
        found = found
            .iter()
            .flat_map(|combination: &Vec<_>| {
                factor.levels(scale).iter().map(move |level| {
                    let mut longer = combination.clone();
                    longer.push((factor.name, *level));
                    longer
                })
            })
            .collect();
    }
    found
}

/// Returns the factor of the web servers if several were measured and the figure selects none. Each server then has
/// its own curves.
fn servers(figure: &Figure, sweep: &Sweep, scale: Scale) -> Option<&'static Factor> {
    let factor = sweep.factor("server")?;
    let said = figure.series.contains(&factor.name)
        || figure.of.iter().any(|(name, _)| *name == factor.name);
    (!said && factor.levels(scale).len() > 1).then_some(factor)
}

/// Returns the name of a level in a legend.
fn label(factor: &str, level: &str) -> String {
    match factor {
        "idle" => format!("{level} idle"),
        "file" => format!("{level} kB"),
        "look-ups" => lookups(level),
        "pair" => format!("{level} kB"),
        "cpus" => format!("{level} vCPU"),
        "starts" => format!("{level} started"),
        "gather" if level != "native" => format!("{level} µs"),
        _ => level.to_owned(),
    }
}

fn lookups(level: &str) -> String {
    let (times, fdb_entries) = level.split_once('@').unwrap_or((level, ""));
    match (times, fdb_entries) {
        ("native", _) => times.to_owned(),
        ("1", "") => "1 look-up".to_owned(),
        (_, "") => format!("{times} look-ups"),
        _ => format!("{times} among {fdb_entries}"),
    }
}

/// Returns the mean over blocks, with its bootstrapped interval.
fn point(metric: &str, at: &[(&str, &str)], sweep: &str, samples: &[Sample]) -> Option<Point> {
    let matching = samples
        .iter()
        .filter(|sample| sample.sweep == sweep && sample.cell.matches(at));
    let mut blocks: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in matching {
        if let Some(value) = sample.values.get(metric).filter(|value| value.is_finite()) {
            blocks.entry(sample.block).or_default().push(*value);
        }
    }
    let figures: Vec<f64> = blocks
        .values()
        .map(|values| inference::mean(values))
        .collect();
    summary(&figures)
}

/// Returns the mean and interval of figures; `None` if there are none.
pub(super) fn summary(figures: &[f64]) -> Option<Point> {
    if figures.is_empty() {
        return None;
    }
    let of = |chosen: &[usize]| {
        inference::mean(
            &chosen
                .iter()
                .filter_map(|at| figures.get(*at).copied())
                .collect::<Vec<_>>(),
        )
    };
    let interval = inference::bootstrap(figures.len(), of);
    Some(Point {
        mean: inference::mean(figures),
        low: interval.low,
        high: interval.high,
    })
}

/// Figures of each cell and metric over the blocks.
pub(super) fn by_cell(samples: &[Sample]) -> BTreeMap<(String, Cell, String), Vec<f64>> {
    let mut cells: BTreeMap<(String, Cell, String), Vec<f64>> = BTreeMap::new();
    for sample in samples {
        for (metric, value) in &sample.values {
            cells
                .entry((sample.sweep.clone(), sample.cell.clone(), metric.clone()))
                .or_default()
                .push(*value);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_curves_have_the_colours_of_ours() {
        let series = |names: &[&str]| -> Vec<Series> {
            let one = |name: &&str| Series {
                name: (*name).to_owned(),
                points: Vec::new(),
            };
            names.iter().map(one).collect()
        };
        let ours = series(&["backend", "vm1", "vm2"]);
        assert_eq!(colours(&series(&["VM1", "VM2 (a run's)"]), &ours), [1, 2]);
        assert_eq!(colours(&series(&["vm1", "Dom0", "x"]), &ours), [1, 0, 2]);
    }

    #[test]
    fn what_was_not_measured_has_no_place_in_a_plot() {
        let point = Some(Point {
            mean: 1.0,
            low: 1.0,
            high: 1.0,
        });
        let curve = |name: &str, points: [Option<Point>; 3]| Series {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let series = vec![
            curve("a", [point, None, point]),
            curve("b", [None, None, None]),
            curve("c", [None, None, point]),
        ];
        let (levels, series) = measured(["64", "1K", "32K"].map(str::to_owned).to_vec(), series);
        assert_eq!(levels, ["64", "32K"]);
        assert_eq!(
            series,
            [
                Series {
                    name: "a".to_owned(),
                    points: vec![point, point]
                },
                Series {
                    name: "c".to_owned(),
                    points: vec![None, point]
                }
            ]
        );
    }
}
