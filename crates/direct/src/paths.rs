//! The paths of the sockets of a group.

use std::path::{Path, PathBuf};

/// Where the monitor of a VM is expected.
#[must_use]
pub fn monitor(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.qmp"))
}

/// Where its QEMU connects for the window.
pub(crate) fn socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}
