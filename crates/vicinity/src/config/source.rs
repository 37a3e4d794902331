//! The source of a configuration, and how a changed configuration is written back to it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::diagnostic::ConfigError;
use super::model::Config;
use super::parse::parse;

/// The configuration used when none is given, as text with comments.
pub(crate) const DEFAULT: &str = include_str!("default.toml");

/// The text in force, and its file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// None for the embedded default configuration.
    path: Option<PathBuf>,
    text: String,
    /// From the command line; takes precedence over the text.
    runtime_dir: Option<PathBuf>,
}

/// Why a changed configuration cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SaveError {
    /// Another program changed the file.
    #[error(
        "another program has changed {} since the daemon loaded it; run `vicinity reload`, then try again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused the write.
    #[error("cannot write {}: {source}; the configuration is unchanged", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Source {
    /// Reads `path`, or the embedded default configuration if `path` is `None`. `runtime_dir`, from
    /// the command line, takes precedence over the file.
    pub(crate) fn load(
        path: Option<&Path>,
        runtime_dir: Option<&Path>,
    ) -> Result<(Self, Config), ConfigError> {
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        let source = Self {
            text: read(path.as_deref())?,
            path,
            runtime_dir: runtime_dir.map(Path::to_owned),
        };
        let config = source.check()?;
        Ok((source, config))
    }

    /// Returns the file; `None` for the default configuration.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Returns the text.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the same source with another text.
    pub(crate) fn with(&self, text: String) -> Self {
        let (path, runtime_dir) = (self.path.clone(), self.runtime_dir.clone());
        Self {
            path,
            text,
            runtime_dir,
        }
    }

    /// Reads the file of this source again.
    pub(crate) fn reload(&self) -> Result<Self, ConfigError> {
        Ok(self.with(read(self.path.as_deref())?))
    }

    /// Parses and checks the text.
    pub(crate) fn check(&self) -> Result<Config, ConfigError> {
        let origin = match &self.path {
            Some(path) => path.display().to_string(),
            None => "the default configuration".to_owned(),
        };
        parse(&origin, &self.text, self.runtime_dir.as_deref())
    }

    /// Replaces `before` on disk by this text atomically. If another program has changed the file
    /// in the meantime, leaves the file unchanged and fails.
    pub(crate) fn save(&self, before: &Self) -> Result<(), SaveError> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        // If the path is a symbolic link, replace the file that it points to, and keep the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.clone());
        if fs::read_to_string(&path).is_ok_and(|text| text != before.text) {
            return Err(SaveError::Changed { path });
        }
        replace(&path, &self.text).map_err(|source| SaveError::Write { path, source })
    }
}

/// Loads `path`, or the embedded default configuration if `path` is `None`. `runtime_dir`, from the
/// command line, takes precedence over the file.
pub(crate) fn load(path: Option<&Path>, runtime_dir: Option<&Path>) -> Result<Config, ConfigError> {
    Source::load(path, runtime_dir).map(|(_, config)| config)
}

fn read(path: Option<&Path>) -> Result<String, ConfigError> {
    let Some(path) = path else {
        return Ok(DEFAULT.to_owned());
    };
    fs::read_to_string(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = write(&new, path, text).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        drop(fs::remove_file(&new));
    }
    written
}

/// Writes `new` with the permissions and the owner of `old`, and syncs it to the disk.
fn write(new: &Path, old: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(new)?;
    if let Ok(metadata) = fs::metadata(old) {
        use std::os::unix::fs::MetadataExt;
        file.set_permissions(metadata.permissions())?;
        std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const TEXT: &str = "[[network]]\nname = \"lan\"\naccept = true\n";

    fn written(folder: &Path) -> Source {
        let path = folder.join("v.toml");
        fs::write(&path, TEXT).unwrap();
        Source::load(Some(&path), None).unwrap().0
    }

    #[test]
    fn a_changed_text_replaces_the_file_through_a_link_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let real = written(folder.path());
        let path = real.path().unwrap().to_owned();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let (source, _) = Source::load(Some(&link), None).unwrap();
        let changed = source.with(format!("{TEXT}# more\n"));
        changed.save(&source).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), changed.text());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o604);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_another_program_changed_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let source = written(folder.path());
        let path = source.path().unwrap();
        fs::write(path, "# mine\n").unwrap();
        let error = source.with("x = 1".to_owned()).save(&source).unwrap_err();
        assert!(matches!(error, SaveError::Changed { .. }));
        assert_eq!(fs::read_to_string(path).unwrap(), "# mine\n");
    }

    #[test]
    fn a_file_that_cannot_be_written_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let source = written(folder.path());
        let path = source.path().unwrap();
        // A folder in the place of the new file: no process can write a file there, not even as
        // root.
        fs::create_dir(folder.path().join("v.toml.new")).unwrap();
        let error = source.with("x = 1".to_owned()).save(&source).unwrap_err();
        assert!(matches!(error, SaveError::Write { .. }), "{error}");
        assert_eq!(fs::read_to_string(path).unwrap(), TEXT);
    }
}
