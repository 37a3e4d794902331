//! A recording: a file with a [`Live`] on each line.
//!
//! A recording comes from other people, in bug reports: its lines have a greatest length, its lists have greatest
//! lengths, and the characters of its names cannot control a terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde_json::Value;

use super::names::printable;
use super::{Live, VERSION};

/// The greatest length of a line in bytes. A host with 1,000 VMs and 10,000 pairs has about 4 MB.
const MAX_LINE: u64 = 16 << 20;
/// The greatest number of entries of each list of a line.
const MAX_VMS: usize = 4096;
const MAX_PAIRS: usize = 65_536;

/// Why a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read the recording: {0}; check the path and its permissions")]
    Read(#[from] std::io::Error),
    /// A line is too long.
    #[error(
        "line {0} of the recording is longer than 16 MiB; it is no recording of `vicinity top --record`"
    )]
    Long(usize),
    /// A line is not what a recording has.
    #[error(
        "line {line} of the recording is not valid: {source}; it may be cut off, or of another version"
    )]
    Invalid {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// A newer program made the line.
    #[error(
        "line {line} of the recording has version {version} of the format, and this program reads version {VERSION}; \
         use the program that recorded it"
    )]
    Newer {
        /// Its number, from 1.
        line: usize,
        /// The version.
        version: u32,
    },
    /// A line has too many entries.
    #[error(
        "line {0} of the recording has too many VMs, ports or pairs; it is no recording of a host"
    )]
    Many(usize),
    /// There is nothing in it.
    #[error("the recording has no interval")]
    Empty,
}

/// Reads a recording.
#[derive(Debug)]
pub(crate) struct Recording<R = BufReader<File>> {
    from: R,
    line: usize,
}

impl Recording {
    /// Opens a file.
    pub(crate) fn open(path: &Path) -> Result<Self, RecordingError> {
        Ok(Self::new(BufReader::new(File::open(path)?)))
    }
}

impl<R: BufRead> Recording<R> {
    /// Reads from this source.
    pub(crate) fn new(from: R) -> Self {
        Self { from, line: 0 }
    }

    /// Returns the next interval; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Live>, RecordingError> {
        loop {
            let mut line = Vec::new();
            let mut limited = (&mut self.from).take(MAX_LINE + 1);
            limited.read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(None);
            }
            self.line += 1;
            if line.len() as u64 > MAX_LINE {
                return Err(RecordingError::Long(self.line));
            }
            if !line.trim_ascii().is_empty() {
                return self.parse(&line).map(Some);
            }
        }
    }

    fn parse(&self, text: &[u8]) -> Result<Live, RecordingError> {
        /// The part that all versions have.
        #[derive(serde::Deserialize)]
        struct Head {
            version: u32,
        }
        let line = self.line;
        let invalid = |source| RecordingError::Invalid { line, source };
        let Head { version } = serde_json::from_slice(text).map_err(invalid)?;
        if version > VERSION {
            return Err(RecordingError::Newer { line, version });
        }
        let mut value: Value = serde_json::from_slice(text).map_err(invalid)?;
        clean(&mut value);
        let live: Live = serde_json::from_value(value).map_err(invalid)?;
        let report = &live.report;
        let vms = [
            report.vms.len(),
            live.ports.len(),
            live.problems.len(),
            live.remote_peers.len(),
        ];
        if vms.into_iter().any(|count| count > MAX_VMS) || report.pairs.len() > MAX_PAIRS {
            return Err(RecordingError::Many(line));
        }
        Ok(live)
    }
}

/// Replaces the characters of all texts that can control a terminal.
fn clean(value: &mut Value) {
    match value {
        Value::String(text) => *text = printable(text),
        Value::Array(items) => items.iter_mut().for_each(clean),
        Value::Object(fields) => fields.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
