//! A built image, and what it was made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A built image: what QEMU needs to boot a guest.
#[derive(Clone, Debug)]
pub struct Image {
    /// The kernel, as Debian's package has it.
    pub kernel: PathBuf,
    /// The initramfs.
    pub initrd: PathBuf,
    /// What is in it.
    pub manifest: Manifest,
}

/// What an image was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Release of the guest's kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Every package in the image (dependencies too) with its version.
    pub packages: BTreeMap<String, String>,
}
