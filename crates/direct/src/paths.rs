//! The paths of the monitors of a group.

use std::path::{Path, PathBuf};

/// Returns the path at which the monitor of a VM's QEMU is expected.
#[must_use]
pub fn monitor(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.qmp"))
}
