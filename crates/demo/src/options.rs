//! Options of the demo.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use vm_harness::direct;
use vm_harness::error::{Context, Error, Result};

/// Programs, folders, channels and length of the demo.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `vicinity` program, which serves the switch.
    pub vicinity: PathBuf,
    /// Folder of the guest images, which later runs use again.
    pub cache: PathBuf,
    /// Folder of the results and logs.
    pub output: PathBuf,
    /// The channels: the first is the baseline, the second is compared with it.
    pub channels: [&'static str; 2],
    /// Rounds; each measures every workload once over each channel.
    pub rounds: u32,
    /// Length of the measurements.
    pub durations: Durations,
}

impl Options {
    /// Returns the default demo: `bridge` and `switch`, five rounds, files below `target`.
    #[must_use]
    pub fn new(vicinity: &Path, target: &Path) -> Self {
        Self {
            vicinity: vicinity.to_owned(),
            cache: target.join("lab"),
            output: target.join("demo"),
            channels: ["bridge", "switch"],
            rounds: 5,
            durations: Durations::default(),
        }
    }

    /// Compares this channel with the bridge instead.
    ///
    /// # Errors
    /// [`Error::Host`] if a tool is missing that the channel's module is built with.
    pub fn over(mut self, channel: &str) -> Result<Self> {
        if channel == "direct" {
            direct::missing().map_or(Ok(()), |why| Err(Error::Host(why)))?;
            self.channels = ["bridge", "direct"];
        }
        Ok(self)
    }

    /// Writes a result as JSON into the output folder.
    pub(super) fn write(&self, name: &str, result: &impl Serialize) -> Result<()> {
        let path = self.output.join(name);
        let text = serde_json::to_vec_pretty(result).context(|| "the result".to_owned())?;
        fs::write(&path, text).context(|| format!("write {}", path.display()))
    }
}

/// Seconds of each measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// TCP stream.
    pub tcp: u32,
    /// UDP stream.
    pub udp: u32,
    /// Request and response.
    pub round_trip: u32,
}

impl Default for Durations {
    fn default() -> Self {
        Self {
            tcp: 3,
            udp: 2,
            round_trip: 2,
        }
    }
}
