//! The paths of the sockets of a group.

use std::path::{Path, PathBuf};

/// Returns the path at which the monitor of a VM's QEMU is expected.
#[must_use]
pub fn monitor(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.qmp"))
}

/// Returns the path of the socket to which a VM's QEMU connects for the control window.
pub(crate) fn socket(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.sock"))
}
