//! A folder of a program's own, for the sockets of its plane of datagrams.
//!
//! It is in `$XDG_RUNTIME_DIR`, or else in the folder for temporary files, and only its user may use it. A program that is killed leaves its
//! folder; the next program of the user removes it, as the lock on the folder is then free.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;

/// What the names of these folders begin with.
const PREFIX: &str = "vicinity-program-";

/// Folders that one program removes, at most: other users may have created any number of such names.
const REMOVED: usize = 64;

/// The folder of the sockets below, because a process that binds a socket locks the socket's folder.
const SOCKETS: &str = "sockets";

#[derive(Debug)]
pub(super) struct ProgramFolder {
    path: PathBuf,
    sockets: PathBuf,
    /// The folder, which is locked.
    _lock: File,
}

impl ProgramFolder {
    /// Creates a folder, and removes those that killed programs of this user have left.
    pub(super) fn create() -> io::Result<Self> {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        let parent = runtime
            .filter(|path| path.is_dir())
            .unwrap_or_else(std::env::temp_dir);
        Self::create_in(&parent)
    }

    fn create_in(parent: &Path) -> io::Result<Self> {
        remove_left(parent)?;
        let own = std::process::id();
        for number in 0_u32.. {
            let path = parent.join(format!("{PREFIX}{own}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
                other => other?,
            }
            // Until it is locked, another program may remove it.
            if let Ok(lock) = lock(&path)
                && let sockets = path.join(SOCKETS)
                && DirBuilder::new().mode(0o700).create(&sockets).is_ok()
            {
                return Ok(Self {
                    path,
                    sockets,
                    _lock: lock,
                });
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    pub(super) fn sockets(&self) -> &Path {
        &self.sockets
    }
}

impl Drop for ProgramFolder {
    fn drop(&mut self) {
        // The next program removes what is left.
        let _result = fs::remove_dir_all(&self.path);
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let folder = File::open(path)?;
    flock(&folder, FlockOperation::NonBlockingLockExclusive)?;
    Ok(folder)
}

/// Removes the folders of this user's programs that have ended.
fn remove_left(parent: &Path) -> io::Result<()> {
    let own = geteuid().as_raw();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        let found = fs::symlink_metadata(path);
        name.is_some_and(|name| name.starts_with(PREFIX))
            && found.is_ok_and(|found| found.is_dir() && found.uid() == own)
    };
    let entries = fs::read_dir(parent)?.flatten();
    let ours = entries.map(|entry| entry.path()).filter(is_ours);
    for path in ours.take(REMOVED) {
        if let Ok(_lock) = lock(&path) {
            // Another program may remove it, too.
            let _result = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_lasts_as_long_as_its_program() {
        let parent = tempfile::tempdir().unwrap();
        let first = ProgramFolder::create_in(parent.path()).unwrap();
        let second = ProgramFolder::create_in(parent.path()).unwrap();
        assert!(first.sockets().is_dir() && first.path != second.path);
        let mode = fs::metadata(&first.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let gone = first.path.clone();
        drop(first);
        assert!(!gone.exists());
        // As a program that was killed leaves it.
        let left = parent.path().join(format!("{PREFIX}1-0"));
        fs::create_dir(&left).unwrap();
        fs::write(left.join("file"), "").unwrap();
        let other = parent.path().join("other");
        fs::create_dir(&other).unwrap();
        let third = ProgramFolder::create_in(parent.path()).unwrap();
        assert!(!left.exists() && other.exists());
        assert!(second.path.exists() && third.path.exists());
    }
}
