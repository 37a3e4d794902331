//! The journal of settings. It records on disk how to undo each setting, before the setting is made.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use vm_harness::error::{Context, Error, Result};
use vm_harness::scope;

use super::undo::{Undo, put};

/// Folder of the journals. A reboot removes them, and resets the settings that they would undo.
const FOLDER: &str = "/run";
const SUFFIX: &str = ".journal";

/// The settings of a run. Undone in reverse order on drop.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    undo: Vec<Undo>,
}

impl Journal {
    /// Begins a journal. Its name contains its owner, so that the next run recognises a leftover.
    ///
    /// # Errors
    /// `/run` cannot be written.
    pub fn begin() -> Result<Self> {
        let path = Path::new(FOLDER).join(scope::unique() + SUFFIX);
        let file = OpenOptions::new().create_new(true).append(true).open(&path);
        let file = file.context(|| format!("make {}", path.display()))?;
        Ok(Self {
            path,
            file,
            undo: Vec::new(),
        })
    }

    /// Records how to undo the next setting.
    pub(super) fn note(&mut self, undo: Undo) -> Result<()> {
        let line = serde_json::to_string(&undo).context(|| "describe a setting".to_owned())? + "\n";
        let written = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        written.context(|| format!("write {}", self.path.display()))?;
        self.undo.push(undo);
        Ok(())
    }

    /// Writes a file of the kernel and reads it back.
    ///
    /// # Errors
    /// The kernel refuses the value, or sets another one.
    pub fn write(&mut self, path: &Path, value: &str) -> Result<()> {
        let old = read(path)?;
        self.note(Undo::Write {
            path: path.to_owned(),
            value: old,
        })?;
        put(path, value)?;
        let kept = read(path)?;
        if kept == value {
            return Ok(());
        }
        Err(Error::Host(format!(
            "{} was set to {value} but reads {kept}",
            path.display()
        )))
    }

    /// Undoes all settings now. Dropping the journal does the same.
    pub fn undo(&mut self) {
        undo_all(&mut self.undo);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.undo();
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

/// Undoes the settings of crashed runs. Returns the journals' names.
///
/// # Errors
/// A journal cannot be read or removed.
pub fn restore_leftovers() -> Result<Vec<String>> {
    restore_in(Path::new(FOLDER))
}

fn restore_in(folder: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let ours = names.filter(|name| name.strip_suffix(SUFFIX).is_some_and(scope::is_leftover));
    let mut restored = Vec::new();
    for name in ours {
        let path = folder.join(&name);
        let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
        // The last line may be incomplete. In this case the run never made its setting.
        let mut undo: Vec<Undo> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        undo_all(&mut undo);
        fs::remove_file(&path).context(|| format!("remove {}", path.display()))?;
        restored.push(name);
    }
    Ok(restored)
}

fn undo_all(undo: &mut Vec<Undo>) {
    while let Some(step) = undo.pop() {
        if let Err(error) = step.run() {
            tracing::warn!("cannot restore a setting: {error}");
        }
    }
}

fn read(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_undone_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let knob = folder.path().join("knob");
        fs::write(&knob, "1\n").unwrap();
        let mut journal = Journal::begin().unwrap();
        let path = journal.path.clone();
        journal.write(&knob, "2").unwrap();
        journal.write(&knob, "3").unwrap();
        assert_eq!(fs::read_to_string(&knob).unwrap(), "3");
        drop(journal);
        assert_eq!(fs::read_to_string(&knob).unwrap(), "1");
        assert!(!path.exists());
    }

    #[test]
    fn a_crash_is_undone_by_the_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let knob = folder.path().join("knob");
        fs::write(&knob, "9").unwrap();
        let undo = serde_json::to_string(&Undo::Write {
            path: knob.clone(),
            value: "1".into(),
        })
        .unwrap();
        let dead = folder.path().join("vicinity-lab-4194305-0-0.journal");
        fs::write(&dead, format!("{undo}\n{}", undo.get(..9).unwrap())).unwrap();
        let alive = folder.path().join(scope::unique() + SUFFIX);
        fs::write(&alive, &undo).unwrap();
        assert_eq!(restore_in(folder.path()).unwrap().len(), 1);
        assert_eq!(fs::read_to_string(&knob).unwrap(), "1");
        assert!(!dead.exists() && alive.exists());
    }
}
