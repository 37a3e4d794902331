//! Guest images: Debian's own kernel and a small initramfs of Debian packages.
//!
//! [`Recipe::build`] asks `mmdebstrap` to unpack the packages (no maintainer script runs) from
//! the archive the host's apt uses, keeps what a test guest needs, adds our `/init` and writes
//! the tree as an uncompressed cpio, which boots quickest. The kernel is the package's file,
//! untouched. The result is kept in a cache folder named by a hash of everything that went in;
//! it is made under another name and renamed when it is whole, so half an image is never used.
//!
//! Packages are unpacked, not configured: no users but the base ones, no alternatives, no
//! service is started. A package that needs more has to be set up by the command that uses it.

mod cpio;
mod inputs;
mod overlay;
mod root;
mod sources;
mod tree;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result};
use crate::interrupt;
use inputs::Inputs;
pub use root::clean_root;

/// What every lab guest has.
const PACKAGES: [&str; 17] = [
    "base-files",
    "base-passwd",
    "bash",
    "coreutils",
    "ethtool",
    "grep",
    "hostname",
    "iperf3",
    "iproute2",
    "iputils-ping",
    "kmod",
    // Newer kmod loads it by itself to read compressed modules.
    "liblzma5",
    "mount",
    "procps",
    "qemu-guest-agent",
    "sockperf",
    "util-linux",
];

const MODULES: [&str; 3] = ["virtio_pci", "virtio_net", "virtio_console"];

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

/// What goes into an image. [`Recipe::default`] is the lab's standard guest.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The package of its kernel.
    kernel: String,
    packages: Vec<String>,
    modules: Vec<String>,
}

impl Default for Recipe {
    fn default() -> Self {
        Self {
            kernel: "linux-image-cloud-amd64".to_owned(),
            packages: PACKAGES.map(String::from).to_vec(),
            modules: MODULES.map(String::from).to_vec(),
        }
    }
}

impl Recipe {
    /// With another kernel than the release's own for clouds: a Debian package.
    #[must_use]
    pub fn kernel(mut self, package: &str) -> Self {
        package.clone_into(&mut self.kernel);
        self
    }

    /// Add a Debian package (with its dependencies).
    #[must_use]
    pub fn package(mut self, name: &str) -> Self {
        self.packages.push(name.to_owned());
        self
    }

    /// Add a kernel module of the kernel's package, loaded at boot after those it depends on.
    #[must_use]
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.to_owned());
        self
    }

    /// The image, from `cache` if it is there, else built (10 to 60 s, needs the network and
    /// root). Several processes may ask at once.
    ///
    /// # Errors
    /// `mmdebstrap` is missing or fails, or the cache cannot be written.
    pub fn build(&self, cache: &Path) -> Result<Image> {
        let inputs = Inputs::of(self)?;
        let home = cache.join(inputs.key()?);
        if let Some(image) = load(&home)? {
            return Ok(image);
        }
        fs::create_dir_all(cache).context(|| format!("make {}", cache.display()))?;
        let _lock = lock(cache)?;
        if let Some(image) = load(&home)? {
            return Ok(image);
        }
        tracing::info!("building the guest image {}", home.display());
        // The lock is ours: whatever carries this name was left by a build that was cut short.
        let scratch = Scratch::new(cache.join("unfinished"))?;
        inputs.make(&scratch.0)?;
        fs::rename(scratch.0.join("image"), &home)
            .context(|| format!("put the image into {}", home.display()))?;
        load(&home)?.ok_or_else(|| Error::Host(format!("{} vanished", home.display())))
    }
}

/// A folder removed on drop. `rm --one-file-system` does it: were something of the host still
/// mounted in there, it would survive.
struct Scratch(PathBuf);

impl Scratch {
    fn new(path: PathBuf) -> Result<Self> {
        let scratch = Self(path);
        scratch.remove()?;
        fs::create_dir(&scratch.0).context(|| format!("make {}", scratch.0.display()))?;
        Ok(scratch)
    }

    fn remove(&self) -> Result<()> {
        let rm = std::process::Command::new("rm")
            .args(["-rf", "--one-file-system", "--"])
            .arg(&self.0)
            .status();
        match rm {
            Ok(status) if status.success() => Ok(()),
            _ => Err(Error::Host(format!("cannot remove {}", self.0.display()))),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!("{error}");
        }
    }
}

fn load(home: &Path) -> Result<Option<Image>> {
    let Ok(text) = fs::read_to_string(home.join("manifest.json")) else {
        return Ok(None);
    };
    let manifest =
        serde_json::from_str(&text).map_err(|_| Error::unreadable("an image's manifest", &text))?;
    Ok(Some(Image {
        kernel: home.join("vmlinuz"),
        initrd: home.join("initrd.cpio"),
        manifest,
    }))
}

fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).context(|| format!("make {}", path.display()))?;
    let limit = Duration::from_secs(600);
    interrupt::poll("another build of the guest image", limit, || {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(())),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).context(|| format!("lock {}", path.display())),
        }
    })?;
    Ok(file)
}
