//! How far apart the CPUs were.
//!
//! The CPUs of a virtual machine move between cores of the host below it, and with them how far apart
//! they are: a cache line may take 40 ns from one to the other and back, or 400. Programs that do
//! nothing but hand lines over feel it at once. Cells with emulated guests did not: in three runs (430
//! cells) those measured with the CPUs far apart spread no more around their cell's median than the
//! others. So it is told, and no cell is left out for it.

use std::collections::BTreeMap;

use super::sample::Sample;

/// A block changed whose CPUs were at one time so many times as far apart as at another.
const TWOFOLD: f64 = 2.0;

/// How far apart the CPUs were, and in how many blocks that changed; nothing if it is not known.
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
        .all(|distance| *distance <= nearest * TWOFOLD)
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
