//! Restricts a run to some levels of some factors: `--only size=64,1K`.

use std::collections::{BTreeMap, BTreeSet};

use super::catalogue::{Scale, Sweep};
use super::sample::Cell;
use vm_harness::error::{Error, Result};

/// The selected levels, by factor. If a factor is not in the map, all of its levels are selected.
pub type CellFilter = BTreeMap<String, Vec<String>>;

/// Parses the arguments of `--only`, and checks them against the sweeps of the run.
///
/// # Errors
/// A factor or a level is unknown; the error names the nearest.
pub fn read(asked: &[String], sweeps: &[&Sweep], scale: Scale) -> Result<CellFilter> {
    let mut only = CellFilter::new();
    for one in asked {
        let (factor, levels) = one.split_once('=').unwrap_or((one, ""));
        let known: BTreeSet<&str> = levels_of(factor, sweeps, scale);
        if known.is_empty() {
            let factors = sweeps.iter().flat_map(|sweep| sweep.factors);
            let names: BTreeSet<&str> = factors.map(|factor| factor.name).collect();
            return Err(unknown("factor", factor, &names));
        }
        for level in levels.split(',') {
            if !known.contains(level) {
                let what = format!("level of {factor}");
                return Err(unknown(&what, level, &known));
            }
            only.entry(factor.to_owned())
                .or_default()
                .push(level.to_owned());
        }
    }
    Ok(only)
}

/// Whether a cell is selected.
#[must_use]
pub fn selects(only: &CellFilter, cell: &Cell) -> bool {
    only.iter().all(|(factor, levels)| {
        let level = cell.0.get(factor);
        level.is_none_or(|level| levels.contains(level))
    })
}

fn levels_of(factor: &str, sweeps: &[&Sweep], scale: Scale) -> BTreeSet<&'static str> {
    let found = sweeps.iter().filter_map(|sweep| sweep.factor(factor));
    found
        .flat_map(|factor| factor.levels(scale))
        .copied()
        .collect()
}

fn unknown(what: &str, word: &str, known: &BTreeSet<&str>) -> Error {
    let likeness = |name: &str| strsim::jaro_winkler(name, word);
    let near = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let list: Vec<&str> = known.iter().copied().collect();
    Error::Host(format!(
        "there is no {what} {word}; the nearest is {}. There are: {}",
        near.copied().unwrap_or("none"),
        list.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::sweep;

    fn asked(words: &[&str]) -> Result<CellFilter> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let sweeps = [sweep("udp").unwrap(), sweep("tcp").unwrap()];
        read(&words, &sweeps, Scale::Ci)
    }

    #[test]
    fn an_unknown_factor_or_level_names_the_nearest() {
        let said = |words: &[&str]| asked(words).unwrap_err().to_string();
        assert!(said(&["chanel=switch"]).contains("nearest is channel"));
        assert!(said(&["channel=swich"]).contains("level of channel swich; the nearest is switch"));
        assert!(said(&["size"]).contains("There are: 1K, 32K, 64"));
    }

    #[test]
    fn cells_are_kept_by_the_factors_they_have() {
        let only = asked(&["size=64,1K", "placement=shared"]).unwrap();
        let cell = |levels: &[(&str, &str)]| {
            let levels = levels.iter();
            Cell(
                levels
                    .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                    .collect(),
            )
        };
        assert!(selects(
            &only,
            &cell(&[("size", "64"), ("placement", "shared")])
        ));
        assert!(selects(
            &only,
            &cell(&[("size", "1K"), ("channel", "switch")])
        ));
        assert!(!selects(&only, &cell(&[("size", "32K")])));
        assert!(!selects(&only, &cell(&[("placement", "separate")])));
    }
}
