//! Writes a recording: each interval as a line of JSON.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use crate::live::Live;

/// A recording that grows.
#[derive(Debug)]
pub(super) struct Recorder(Option<File>);

impl Recorder {
    /// Creates the file, or replaces it; without one, records nothing.
    pub(super) fn new(file: Option<&Path>) -> io::Result<Self> {
        file.map(File::create).transpose().map(Self)
    }

    /// Adds an interval.
    pub(super) fn add(&mut self, live: &Live) -> io::Result<()> {
        let Some(file) = &mut self.0 else {
            return Ok(());
        };
        let mut line = serde_json::to_vec(live)?;
        line.push(b'\n');
        file.write_all(&line)
    }
}
