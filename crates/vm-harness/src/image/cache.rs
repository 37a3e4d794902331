//! The cache folder of images: its lock, and a scratch folder for unfinished images.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::error::{Context, Error, Result};
use crate::interrupt;

/// A folder that is removed on drop, by `rm --one-file-system`: if a file system of the host were still
/// mounted in the folder, its files would survive.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new(path: PathBuf) -> Result<Self> {
        let scratch = Self(path);
        scratch.remove()?;
        fs::create_dir(&scratch.0).context(|| format!("make {}", scratch.0.display()))?;
        Ok(scratch)
    }

    /// Returns the path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.0
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

/// Locks the cache folder until the file is dropped.
pub(super) fn lock(cache: &Path) -> Result<File> {
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
