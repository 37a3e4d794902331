//! Names that contain their owner, and the removal of what a crashed run left behind.
//!
//! Everything that the harness makes in a shared place (a folder below `/run`, a network namespace) is
//! named `vicinity-lab-<owner's process id>-<owner's start time>-<number>`. A name whose owner has
//! ended is a leftover; the start time distinguishes the owner from a later process with the same id.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Context, Result};
use crate::host;
use crate::progress::Progress;

const PREFIX: &str = "vicinity-lab-";
const RUN: &str = "/run";
const NAMESPACES: &str = "/run/netns";

/// Returns a name that no other run and no other call uses.
#[must_use]
pub fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let id = std::process::id();
    let start = host::start_time(id).unwrap_or_default();
    format!("{PREFIX}{id}-{start}-{number}")
}

/// Whether [`unique`] made this name for a process that no longer runs.
#[must_use]
pub fn is_leftover(name: &str) -> bool {
    let owner = || {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let id: u32 = parts.next()?.parse().ok()?;
        let start: u64 = parts.next()?.parse().ok()?;
        let _number: u32 = parts.next()?.parse().ok()?;
        Some((id, start))
    };
    owner().is_some_and(|(id, start)| host::start_time(id) != Some(start))
}

fn leftovers(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| is_leftover(name)).collect()
}

/// Removes what crashed runs left behind, and returns the names of what was removed. Another run
/// may do the same at this time: a leftover that has vanished counts as removed.
///
/// # Errors
/// A leftover cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    let mut removed = Vec::new();
    for name in leftovers(NAMESPACES) {
        let done = delete_namespace(&name);
        ignore_missing(done, &Path::new(NAMESPACES).join(&name))?;
        removed.push(name);
    }
    for name in leftovers(RUN) {
        let folder = Path::new(RUN).join(&name);
        let done = fs::remove_dir_all(&folder);
        let done = done.context(|| format!("remove {}", folder.display()));
        ignore_missing(done, &folder)?;
        removed.push(name);
    }
    Ok(removed)
}

/// Calls [`sweep`] before a run, and prints what was removed.
///
/// # Errors
/// A leftover cannot be removed.
pub fn sweep_and_log(progress: &Progress) -> Result<()> {
    for name in sweep()? {
        progress.step(&format!(
            "removed {name}, left behind by a run that crashed"
        ));
    }
    Ok(())
}

/// Ignores the error of a removal if another run has removed the leftover in the meantime.
fn ignore_missing(done: Result<()>, path: &Path) -> Result<()> {
    match done {
        Err(_) if path.symlink_metadata().is_err() => Ok(()),
        done => done,
    }
}

/// Deletes a network namespace and every device in it.
pub fn delete_namespace(name: &str) -> Result<()> {
    let mut ip = host::command("ip");
    ip.args(["netns", "delete", name]);
    host::run_to_end(ip).map(drop)
}

/// A folder for sockets; dropping the value removes it. The folder is below `/run` because a socket's path may have
/// only 107 bytes.
#[derive(Debug)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// Makes a folder that only this user may enter.
    ///
    /// # Errors
    /// The folder cannot be made, usually because the process is not root.
    pub fn new() -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt;
        let path = Path::new(RUN).join(unique());
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .context(|| format!("make {} (the lab needs root)", path.display()))?;
        Ok(Self(path))
    }

    /// Returns the path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_may_sweep_at_once() {
        let folder = |number| Path::new(RUN).join(format!("{PREFIX}4194305-0-{number}"));
        for number in 0..100 {
            fs::create_dir_all(folder(number).join("deep")).unwrap();
        }
        std::thread::scope(|scope| {
            let sweeps: Vec<_> = (0..4).map(|_| scope.spawn(sweep)).collect();
            for one in sweeps {
                one.join().unwrap().unwrap();
            }
        });
        assert!((0..100).all(|number| !folder(number).exists()));
    }

    #[test]
    fn only_our_names_with_a_dead_owner_are_leftovers() {
        assert!(!is_leftover(&unique()));
        assert!(is_leftover("vicinity-lab-4194305-0-0"));
        let reused = format!("vicinity-lab-{}-1-0", std::process::id());
        assert!(is_leftover(&reused), "another process has the owner's id");
        for other in [
            "vicinity-lab-",
            "vicinity-lab-x-0",
            "vicinity-4194305-0",
            "4194305",
        ] {
            assert!(!is_leftover(other), "{other}");
        }
    }
}
