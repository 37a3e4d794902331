//! A built image, and the inputs it was made from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A built image: what QEMU needs to boot a guest.
#[derive(Clone, Debug)]
pub struct Image {
    /// The unchanged kernel of Debian's package.
    pub kernel: PathBuf,
    /// The same kernel unpacked, unless it is packed by a method that the builder does not know.
    pub unpacked_kernel: Option<PathBuf>,
    /// The initramfs.
    pub initrd: PathBuf,
    /// Its contents.
    pub manifest: Manifest,
}

/// The kernel release and the packages of an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Release of the guest's kernel, as `uname -r` prints it.
    pub kernel_release: String,
    /// Every package in the image (dependencies too) with its version.
    pub packages: BTreeMap<String, String>,
}
