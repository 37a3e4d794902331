//! Publishes objects into a VM's space, each whole or not at all. For programs in VMs.
//!
//! # Theory of operation
//!
//! ```text
//!  begin("film.m3u8")        write                      publish
//!  create .publish.PID.N ──▶ bytes go to the host ──▶ rename to film.m3u8
//! ```
//!
//! A space is a folder that the VM has mounted (docs/space.md). A program writes an object under a
//! temporary name that begins with a dot, so that a space that pushes its files skips it. Then it renames
//! the object to its own name, in one step: a client that fetches the name receives the old object until
//! then, and the new one afterwards. The host has the written bytes at once, so an object that has been
//! [published](Object::publish) outlives the VM. While the space is full, writing blocks; it continues
//! when the space has free slots again.
//!
//! This works in any folder; the library does not check whether the folder is a space.
//!
//! # Example
//!
//! ```no_run
//! use std::io::Write;
//!
//! let mut object = publish::Object::begin("/mnt/space/film.m3u8")?;
//! writeln!(object, "#EXTM3U")?;
//! object.publish()?;
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// An object that is being written. Dropped before it is published, it leaves nothing behind.
#[derive(Debug)]
pub struct Object {
    file: File,
    /// The temporary path under which it is written; `None` after it was renamed.
    part: Option<PathBuf>,
    path: PathBuf,
}

impl Object {
    /// Begins an object that is to be published under `path`. A file at `path` stays until then.
    ///
    /// # Errors
    /// The path has no file name, or no file can be created in its folder.
    pub fn begin(path: impl Into<PathBuf>) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = path.into();
        if path.file_name().is_none() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = path.with_file_name(format!(".publish.{}.{count}", std::process::id()));
        Ok(Self {
            file: File::create_new(&part)?,
            part: Some(part),
            path,
        })
    }

    /// Renames the object to its path, and so replaces the file there. When this returns, the host has
    /// all bytes of the object.
    ///
    /// # Errors
    /// The object cannot be renamed. Then the file at its path is unchanged.
    pub fn publish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(part) = &self.part {
            fs::rename(part, &self.path)?;
        }
        self.part = None;
        Ok(())
    }
}

impl Write for Object {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        self.file.write_vectored(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Object {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // A destructor cannot report an error.
            drop(fs::remove_file(part));
        }
    }
}

/// Publishes a copy of a file under `path`.
///
/// # Errors
/// The file cannot be read, or as for an [`Object`].
pub fn copy(file: &Path, path: &Path) -> io::Result<()> {
    let mut from = File::open(file)?;
    let mut object = Object::begin(path)?;
    // `io::copy` has the kernel copy from file to file.
    io::copy(&mut from, &mut object.file)?;
    object.publish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> usize {
        fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn an_object_is_there_whole_or_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for text in ["first", "second"] {
            let mut object = Object::begin(&path).unwrap();
            object.write_all(b"?").unwrap();
            let before = fs::read_to_string(&path).ok();
            assert!(before.is_none_or(|before| before == "first"));
            object.rewind().unwrap();
            object.write_all(text.as_bytes()).unwrap();
            object.publish().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // Two objects for one path have two temporary files, which are removed if they are not published.
        let two = [(); 2].map(|()| Object::begin(&path).unwrap());
        assert_eq!(names(folder.path()), 3);
        drop(two);
        assert_eq!(names(folder.path()), 1);
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
    }

    #[test]
    fn what_cannot_be_published_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        // A folder has that name, and a folder cannot be read.
        assert!(Object::begin(&inner).unwrap().publish().is_err());
        assert!(copy(&inner, &folder.path().join("a")).is_err());
        assert!(Object::begin("/").is_err());
        assert_eq!(names(folder.path()), 1);
    }
}
