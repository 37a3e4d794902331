//! Writes reports as JSON.

use std::path::Path;

use serde::Serialize;

use vm_harness::error::{Context, Result};

/// Writes `report` into the file `output`, and makes its folder.
pub(crate) fn write(report: &impl Serialize, output: &Path) -> Result<()> {
    let writing = || format!("write {}", output.display());
    if let Some(folder) = output.parent() {
        std::fs::create_dir_all(folder).context(writing)?;
    }
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from);
    std::fs::write(output, text.context(writing)? + "\n").context(writing)
}
