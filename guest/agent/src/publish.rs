//! `vicinity-agent publish`: copies files into a space.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{AgentError, io};

/// Publishes files under their own names in this folder, which is a space or in one.
pub(crate) fn run(files: &[PathBuf], folder: &Path) -> Result<(), AgentError> {
    files.iter().try_for_each(|file| {
        let failed = || format!("cannot publish {}", file.display());
        let name = file.file_name().ok_or(io::ErrorKind::IsADirectory);
        let name = io(name, failed)?;
        io(publish::copy(file, &folder.join(name)), failed)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_get_their_own_names_and_what_is_none_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let space = folder.path().join("space");
        fs::create_dir(&space).unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        for file in &files {
            fs::write(file, "text").unwrap();
        }
        run(&files, &space).unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs::read_to_string(space.join(name)).unwrap(), "text");
        }
        let wrong = run(&[folder.path().join("c")], &space).unwrap_err();
        assert!(wrong.to_string().contains("cannot publish"), "{wrong}");
    }
}
