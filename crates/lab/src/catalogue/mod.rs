//! Describes every experiment of the papers' measurements as data.
//!
//! A row ([`Experiment`]) holds the paper's figures ([`Figure`]), its claims
//! ([`Claim`](super::claim::Claim)) and the requirements on the host ([`Requirement`]). Rows that use the same cells share a
//! [`Sweep`], so that no cell is measured twice.

mod beyond;
mod channels;
mod direct;
mod domains;
mod experiment;
mod hybrid;
mod idle;
mod interception;
mod metric;
mod neighbours;
mod placement;
mod space_sweeps;
mod stream_sweeps;
mod streams;
mod sweep;
mod web_sweeps;
mod weights;

use vm_harness::error::{Error, Result};

pub use experiment::{Curve, Experiment, Figure, Requirement};
pub use metric::{SETS, metric};
pub use stream_sweeps::INSTRUCTIONS;
pub use sweep::{Factor, Scale, Sweep};

/// Returns every experiment, in the order of the papers.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    channels::ROWS
        .iter()
        .chain(interception::ROWS)
        .chain(placement::ROWS)
        .chain(streams::ROWS)
        .chain(beyond::ROWS)
        .chain(direct::ROWS)
        .chain(idle::ROWS)
        .chain(domains::ROWS)
        .chain(neighbours::ROWS)
        .chain(weights::ROWS)
        .chain(hybrid::ROWS)
}

/// Returns the experiment called `id`, in upper or lower case.
///
/// # Errors
/// There is no such experiment; the error names the nearest.
pub fn find(id: &str) -> Result<&'static Experiment> {
    let wanted = id.to_uppercase();
    all().find(|row| row.id == wanted).ok_or_else(|| {
        let near = all().max_by(|a, b| {
            let likeness = |row: &Experiment| strsim::jaro_winkler(row.id, &wanted);
            likeness(a).total_cmp(&likeness(b))
        });
        let near = near.map_or("X1", |row| row.id);
        Error::Host(format!(
            "there is no experiment {id}; the nearest is {near}. `vicinity lab list` names them all"
        ))
    })
}

/// Returns every sweep, in the order in which a run measures them. The A/A run is first; the sweep for which the
/// testbed boots its VMs again is last.
pub fn sweeps() -> impl Iterator<Item = &'static Sweep> {
    let shared = stream_sweeps::SWEEPS.iter().chain(web_sweeps::SWEEPS);
    let shared = shared.chain(space_sweeps::SWEEPS);
    shared.chain([&stream_sweeps::COUNTED])
}

/// Returns the sweep of this name.
#[must_use]
pub fn sweep(name: &str) -> Option<&'static Sweep> {
    sweeps().find(|sweep| sweep.name == name)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
