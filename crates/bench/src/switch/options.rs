//! The options of a run of the benchmark.

use std::path::{Path, PathBuf};

use super::part::Part;
use crate::ROUNDS;

/// Frame lengths with one pair of ports.
pub const SIZES: [u16; 6] = [64, 128, 256, 512, 1024, 1500];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often each measurement is repeated, see [`ROUNDS`].
    pub rounds: u32,
    /// Frame lengths in bytes, Ethernet header included, check sequence not; 64 to 1514.
    pub sizes: Vec<u16>,
    /// The parts to run; [`Part::ALL`] for all.
    pub parts: Vec<Part>,
    /// The `vicinity` program to measure.
    pub vicinity: PathBuf,
    /// Folder of the guest images, which later runs use again.
    pub cache: PathBuf,
    /// File of the report as JSON; its folder is made.
    pub output: PathBuf,
}

impl Options {
    /// Returns the default benchmark, with its files below `target`.
    #[must_use]
    pub fn new(vicinity: &Path, target: &Path) -> Self {
        Self {
            rounds: ROUNDS,
            sizes: SIZES.to_vec(),
            parts: Part::ALL.to_vec(),
            vicinity: vicinity.to_owned(),
            cache: target.join("lab"),
            output: target.join("bench/switch.json"),
        }
    }
}
