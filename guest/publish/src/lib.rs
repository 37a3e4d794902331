//! Objects into a VM's space, each whole or not at all. For programs in VMs.
//!
//! # Theory of operation
//!
//! A space is a folder that the VM has mounted (docs/space.md). An object is written under a name of
//! its own that begins with a dot, so that a space that pushes leaves it alone; and then given its name,
//! in one step: who fetches it gets the old one until he gets the new one. What is written lies with the
//! host at once, so an object that has been [published](Object::publish) outlives the VM. A full space
//! holds the writer back: writing waits, and goes on when slots return.
//!
//! It works in any folder; nothing here asks whether that is a space.
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
    /// Where it is written; none once it has its name.
    part: Option<PathBuf>,
    path: PathBuf,
}

impl Object {
    /// Begin one, that is to be published under this path. What is there stays until then.
    ///
    /// # Errors
    /// The path has no last name, or the folder takes no files.
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

    /// Give it its name, in place of what has it now. When this returns, the host has all of it.
    ///
    /// # Errors
    /// It cannot have that name; then nothing has changed.
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
            // Nobody can be told.
            drop(fs::remove_file(part));
        }
    }
}

/// Publish a copy of a file under this path.
///
/// # Errors
/// The file cannot be read, or as for an [`Object`].
pub fn copy(file: &Path, path: &Path) -> io::Result<()> {
    let mut from = File::open(file)?;
    let mut object = Object::begin(path)?;
    // Between files, the kernel copies.
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
        // Two at a time are two; what is not published was never there.
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
