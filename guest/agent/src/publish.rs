//! `vicinity-agent publish`: files into a space, each whole or not at all.
//!
//! A file is written under a name of its own, and then given its name, in one step: clients get the
//! old one until they get the new one. When this returns, the host has all of it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, io};

/// Publish files in this folder, which is a space or in one, under their own names.
pub(crate) fn run(files: &[PathBuf], folder: &Path) -> Result<(), AgentError> {
    files.iter().try_for_each(|file| publish(file, folder))
}

fn publish(file: &Path, folder: &Path) -> Result<(), AgentError> {
    let failed = || format!("cannot publish {}", file.display());
    let name = file.file_name().ok_or(io::ErrorKind::IsADirectory);
    let name = io(name, failed)?;
    let mut part = OsString::from(".");
    part.push(name);
    part.push(format!(".{}", std::process::id()));
    let part = folder.join(part);
    let done = write(file, &part).and_then(|()| fs::rename(&part, folder.join(name)));
    if done.is_err() {
        // It may never have been made.
        drop(fs::remove_file(&part));
    }
    io(done, failed)
}

fn write(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = File::open(from)?;
    let mut to = File::create_new(to)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_there_whole_or_as_it_was() {
        let folder = std::env::temp_dir().join(format!("publish-{}", std::process::id()));
        let space = folder.join("space");
        fs::create_dir_all(&space).unwrap();
        let file = folder.join("a");
        for text in ["first", "second"] {
            fs::write(&file, text).unwrap();
            run(std::slice::from_ref(&file), &space).unwrap();
            assert_eq!(fs::read_to_string(space.join("a")).unwrap(), text);
        }
        // A folder cannot be read: what was there stays, and nothing is left over.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(run(&[file], &space).is_err());
        assert_eq!(fs::read_to_string(space.join("a")).unwrap(), "second");
        assert_eq!(fs::read_dir(&space).unwrap().count(), 1);
        fs::remove_dir_all(&folder).unwrap();
    }
}
