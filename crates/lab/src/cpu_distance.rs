//! Reports the distance of the CPUs during a run.
//!
//! The CPUs of a virtual machine move between cores of its host, so their distance changes:
//! a cache line may take 40 ns or 400 ns from one CPU to the other and back. This changes the figures of programs that
//! only pass cache lines. It did not change the figures of cells with emulated guests: in three runs (430 cells) the
//! samples that were measured at a large distance had no larger spread around their cell's median than the others.
//! Therefore the report states the distance, and no cell is excluded.

use std::collections::BTreeMap;

use super::sample::Sample;

/// The distance changed within a block if its largest is this many times its smallest.
const DISTANCE_CHANGE: f64 = 2.0;

/// Returns the distances of the CPUs, and the number of blocks in which they changed; `None` if they were not
/// measured.
#[must_use]
pub(super) fn summary(samples: &[Sample]) -> Option<String> {
    let mut blocks: BTreeMap<(&str, u32), Vec<f64>> = BTreeMap::new();
    for sample in samples {
        let block = blocks.entry((&sample.sweep, sample.block)).or_default();
        block.extend(sample.line_ns);
    }
    let mut all: Vec<f64> = blocks.values().flatten().copied().collect();
    all.sort_by(f64::total_cmp);
    let median = all.get(all.len() / 2)?;
    let (nearest, farthest) = (all.first()?, all.last()?);
    let changed = blocks.values().filter(|one| !are_alike(one)).count();
    Some(format!(
        "A cache line took {nearest:.0} to {farthest:.0} ns (median {median:.0}) from CPU 0 to CPU 1 \
         and back; in {changed} of {} blocks it changed more than twofold.",
        blocks.len()
    ))
}

fn are_alike(distances: &[f64]) -> bool {
    let nearest = distances.iter().copied().fold(f64::INFINITY, f64::min);
    distances
        .iter()
        .all(|distance| *distance <= nearest * DISTANCE_CHANGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Cell;

    fn sample(block: u32, arm: &str, line_ns: Option<f64>) -> Sample {
        Sample {
            sweep: "noise".into(),
            block,
            cell: Cell([("arm".to_owned(), arm.to_owned())].into()),
            values: Default::default(),
            failed: None,
            line_ns,
            at: 0.0,
        }
    }

    #[test]
    fn blocks_in_which_the_cpus_moved_apart_are_counted() {
        let samples = [
            sample(1, "a", Some(44.0)),
            sample(1, "b", Some(370.0)),
            sample(2, "a", Some(370.0)),
            sample(2, "b", Some(300.0)),
            sample(3, "a", None),
        ];
        let told = summary(&samples).unwrap();
        assert!(told.contains("44 to 370 ns"), "{told}");
        assert!(told.contains("in 1 of 3 blocks"), "{told}");
    }

    #[test]
    fn without_a_distance_there_is_no_summary() {
        assert_eq!(summary(&[sample(1, "a", None)]), None);
    }
}
