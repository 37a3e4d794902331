//! The error with which the agent ends.

use std::io;

/// A system call that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub(crate) struct AgentError {
    /// What the agent tried to do.
    what: String,
    /// The kernel's error.
    source: io::Error,
}

/// Adds to a system error what was tried.
pub(crate) fn io<T, E: Into<io::Error>>(
    result: Result<T, E>,
    what: impl FnOnce() -> String,
) -> Result<T, AgentError> {
    result.map_err(|source| AgentError {
        what: what(),
        source: source.into(),
    })
}
