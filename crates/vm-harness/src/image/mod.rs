//! Guest images: Debian's own kernel and a small initramfs of Debian packages.
//!
//! [`Recipe::build`] runs `mmdebstrap` to unpack the packages (no maintainer script runs) from
//! the archive the host's apt uses, removes what a test guest does not need, adds `/init` and writes
//! the tree as an uncompressed cpio, which boots fastest. The kernel is the unchanged file of its
//! package; emulated guests boot what that file unpacks to. The image is stored in a cache folder whose name is a hash of all inputs;
//! the builder renames it into place when it is complete, so an incomplete image is never used.
//!
//! Packages are unpacked and not configured: the image has only the base users and no alternatives, and the guest
//! starts no service of a package. The command that uses a package does what configuration it needs.

mod cache;
mod cpio;
mod inputs;
mod manifest;
mod overlay;
mod recipe;
mod root;
mod sources;
mod tree;
mod vmlinux;

use std::fs;
use std::path::Path;

use crate::error::{Context, Error, Result};
use cache::{Scratch, lock};
use inputs::Inputs;
pub use manifest::{Image, Manifest};
pub use recipe::Recipe;
pub use root::clean_root;

impl Recipe {
    /// Returns the image from `cache`, or builds it (10 to 60 s, needs the network and
    /// root). Several processes may call this at the same time.
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
        // This process holds the lock: a folder with this name is left over from a build that was interrupted.
        let scratch = Scratch::new(cache.join("unfinished"))?;
        inputs.make(scratch.path())?;
        fs::rename(scratch.path().join("image"), &home)
            .context(|| format!("put the image into {}", home.display()))?;
        load(&home)?.ok_or_else(|| Error::Host(format!("{} vanished", home.display())))
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
        unpacked_kernel: Some(home.join("vmlinux")).filter(|file| file.exists()),
        initrd: home.join("initrd.cpio"),
        manifest,
    }))
}
