//! Writes the file of a run's samples: one line of NDJSON for each sample, as soon as it is measured.
//!
//! A full disk must not end a run that takes hours: samples that cannot be written wait
//! in memory and are written with the next one. An incomplete line is removed before another
//! line is written, because otherwise both would be lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::sample::Sample;
use vm_harness::error::{Context, Result};

/// The open file.
#[derive(Debug)]
pub(super) struct SampleLog {
    path: PathBuf,
    file: File,
    /// Bytes of complete lines in the file.
    length: u64,
    /// Lines that are not written yet.
    waiting: Vec<u8>,
}

impl SampleLog {
    /// Opens or makes the file, and removes an incomplete line that a crash left at its end.
    pub(super) fn open(output: &Path) -> Result<Self> {
        let path = output.join("samples.ndjson");
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.context(|| format!("open {}", path.display()))?;
        let text = fs::read(&path).context(|| format!("read {}", path.display()))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        let length = whole.map_or(0, |last| last as u64 + 1);
        file.set_len(length)
            .context(|| format!("cut off the half line at the end of {}", path.display()))?;
        Ok(Self {
            path,
            file,
            length,
            waiting: Vec::new(),
        })
    }

    /// Writes the waiting samples and a new one.
    ///
    /// # Errors
    /// The write failed. The samples stay in memory for the next write, so none is lost.
    pub(super) fn add(&mut self, sample: &Sample) -> Result<()> {
        let line = serde_json::to_vec(sample).context(|| "describe a sample".to_owned())?;
        self.waiting.extend(line);
        self.waiting.push(b'\n');
        self.flush()
    }

    /// Writes the waiting samples.
    ///
    /// # Errors
    /// As for [`SampleLog::add`].
    pub(super) fn flush(&mut self) -> Result<()> {
        let written = self.write();
        if written.is_err() {
            // The file may end with an incomplete line. If the truncation fails too, the next opening removes the line.
            let _full = self.file.set_len(self.length);
        }
        written.context(|| format!("write to {} (is the disk full?)", self.path.display()))
    }

    fn write(&mut self) -> io::Result<()> {
        self.file.write_all(&self.waiting)?;
        self.length += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

#[cfg(test)]
impl SampleLog {
    /// Replaces the file by one on a full disk, and returns the old file.
    pub(super) fn fill_disk(&mut self) -> File {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        std::mem::replace(&mut self.file, full)
    }

    /// Restores the file.
    pub(super) fn make_room(&mut self, disk: File) {
        self.file = disk;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::samples;
    use crate::sample::Cell;

    fn sample(block: u32) -> Sample {
        Sample {
            sweep: "udp".into(),
            block,
            cell: Cell::default(),
            values: Default::default(),
            failed: None,
            line_ns: None,
            at: 0.0,
        }
    }

    #[test]
    fn samples_wait_while_the_disk_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let mut book = SampleLog::open(folder.path()).unwrap();
        book.add(&sample(1)).unwrap();
        let disk = book.fill_disk();
        let error = book.add(&sample(2)).unwrap_err().to_string();
        assert!(error.contains("is the disk full?"), "{error}");
        assert!(book.add(&sample(3)).is_err());
        book.make_room(disk);
        book.add(&sample(4)).unwrap();
        let found = samples(folder.path()).unwrap();
        assert_eq!(found, [1, 2, 3, 4].map(sample));
    }

    #[test]
    fn half_a_line_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        SampleLog::open(folder.path())
            .unwrap()
            .add(&sample(1))
            .unwrap();
        let path = folder.path().join("samples.ndjson");
        let mut text = fs::read(&path).unwrap();
        text.extend(text.clone().iter().take(20));
        fs::write(&path, text).unwrap();
        SampleLog::open(folder.path())
            .unwrap()
            .add(&sample(2))
            .unwrap();
        assert_eq!(samples(folder.path()).unwrap(), [1, 2].map(sample));
    }
}
