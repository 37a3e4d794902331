//! Output of commands to standard output.

use std::io::{self, Write};

use super::failure::Failure;

/// Writes to standard output. Returns no error if the reader has closed its end of the pipe.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns a value as JSON for people and programs.
pub(crate) fn as_json(value: &impl serde::Serialize) -> String {
    // These types always have a JSON form: no maps, no failing serializers.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

/// Returns a value as one line of JSON, for programs that read one after another.
pub(crate) fn as_json_line(value: &impl serde::Serialize) -> String {
    let mut text = serde_json::to_string(value).unwrap_or_default();
    text.push('\n');
    text
}
