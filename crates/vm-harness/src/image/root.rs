//! A clean Debian root, for tests of packages.

use std::fs;
use std::path::{Path, PathBuf};

use super::cache::{Scratch, lock};
use super::inputs::{bootstrap, codename};
use crate::error::{Context, Result};

/// Returns the archive of a configured Debian root of the host's release with these packages and the essential ones,
/// from `cache`, or makes it (about a minute, needs the network and root).
///
/// # Errors
/// `mmdebstrap` is missing or fails, or the cache cannot be written.
pub fn clean_root(packages: &[&str], cache: &Path) -> Result<PathBuf> {
    let codename = codename()?;
    let archive = cache.join(format!("{codename}-{}.tar", packages.join("-")));
    fs::create_dir_all(cache).context(|| format!("make {}", cache.display()))?;
    let _lock = lock(cache)?;
    if !archive.exists() {
        let scratch = Scratch::new(cache.join("unfinished"))?;
        let made = scratch.path().join("root.tar");
        let options = ["--variant=minbase".to_owned()];
        bootstrap(
            scratch.path(),
            &codename,
            &options,
            &packages.join(","),
            &made,
        )?;
        fs::rename(&made, &archive).context(|| format!("make {}", archive.display()))?;
    }
    Ok(archive)
}
