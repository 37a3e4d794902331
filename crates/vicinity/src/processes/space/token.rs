//! The file of a token, by which clients authenticate to a space, or a space to its store.

use std::path::Path;

use crate::processes::start::ProcessError;

/// Longest token, in bytes.
const MAX_TOKEN: usize = 4096;

/// Returns the token in this file.
pub(super) fn read(file: &Path) -> Result<String, ProcessError> {
    let wrong = |why: String| ProcessError::Token {
        file: file.display().to_string(),
        why,
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let token = text.trim();
    match (1..=MAX_TOKEN).contains(&token.len()) {
        true => Ok(token.to_owned()),
        false => Err(wrong(format!("it must have 1 to {MAX_TOKEN} characters"))),
    }
}
