//! Error messages for mistakes in the configuration. Each has file, line, column, key, the line
//! itself, and what to do.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use super::key_path;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {source}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The text is not a valid configuration.
    #[error("{0}")]
    Invalid(Box<Diagnostic>),
}

/// A mistake, and the bytes of the text at which it is.
#[derive(Debug)]
pub(super) struct ValueError {
    at: Range<usize>,
    message: String,
    help: String,
}

impl ValueError {
    pub(super) fn new(
        at: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self {
            at,
            message: message.into(),
            help: help.into(),
        }
    }

    pub(super) fn from_toml(error: &toml::de::Error) -> Self {
        let message = error.message().trim().replace('\n', "; ");
        Self::new(error.span().unwrap_or(0..0), message, "")
    }
}

/// A mistake with its line and column, ready to be printed.
#[derive(Debug)]
pub(crate) struct Diagnostic {
    origin: String,
    line: usize,
    column: usize,
    width: usize,
    key: String,
    source: String,
    message: String,
    help: String,
}

/// Finds the line, the column and the key of a mistake in the text.
pub(super) fn explain(origin: &str, text: &str, mistake: &ValueError) -> Diagnostic {
    let start = mistake.at.start.min(text.len());
    let before = text.get(..start).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let source = text
        .get(line_start..)
        .and_then(|rest| rest.lines().next())
        .unwrap_or_default();
    let column = chars(before.get(line_start..).unwrap_or_default()) + 1;
    let marked = chars(text.get(mistake.at.clone()).unwrap_or_default());
    let room = (chars(source) + 1).saturating_sub(column);
    Diagnostic {
        origin: origin.to_owned(),
        line: line_number(text, start),
        column,
        width: marked.min(room).max(1),
        key: key_path::key_at(text, start),
        source: source.to_owned(),
        message: mistake.message.clone(),
        help: mistake.help.clone(),
    }
}

/// Returns the number of the line with byte `at`, counted from 1.
pub(super) fn line_number(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn chars(text: &str) -> usize {
    text.chars().count()
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            origin,
            line,
            column,
            ..
        } = self;
        write!(f, "{origin}:{line}:{column}: ")?;
        if !self.key.is_empty() {
            write!(f, "{}: ", self.key)?;
        }
        let number = line.to_string();
        let margin = " ".repeat(number.len());
        let indent = " ".repeat(column - 1);
        let mark = "^".repeat(self.width);
        writeln!(f, "{}", self.message)?;
        writeln!(f, " {number} | {}", self.source)?;
        write!(f, " {margin} | {indent}{mark}")?;
        if !self.help.is_empty() {
            write!(f, "\n {}", self.help)?;
        }
        Ok(())
    }
}
