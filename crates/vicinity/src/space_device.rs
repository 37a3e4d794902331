//! The device by which a VM sees its space, as the options of its QEMU, the supervisor's monitor commands and the
//! guest name it.

/// What QEMU calls the space's device, and its connection to the space's process.
pub(crate) const DEVICE: &str = "space-fs";
pub(crate) const CHARDEV: &str = "space";

/// What the VM mounts.
pub(crate) const TAG: &str = "space";
