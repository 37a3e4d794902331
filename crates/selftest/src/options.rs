//! Options of the self-test.

use std::path::PathBuf;
use std::time::Duration;

/// Programs, folders and checks of the self-test.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `vicinity` program, which serves the VMs and runs in them.
    pub vicinity: PathBuf,
    /// Its version.
    pub version: String,
    /// Folder of the guest images, which later runs use again.
    pub cache: PathBuf,
    /// Folder of the report and the logs.
    pub output: PathBuf,
    /// Ids of the checks to run; all if there are none.
    pub only: Vec<String>,
    /// The time for all checks together.
    pub limit: Duration,
}

/// The time for all checks together, by default.
pub const LIMIT: Duration = Duration::from_secs(570);
