//! Why the agent cannot go on.

use std::io;

/// Something the kernel does not do.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
pub(crate) struct AgentError {
    /// What was tried.
    what: String,
    /// What the kernel says.
    source: io::Error,
}

/// Name what was tried.
pub(crate) fn io<T, E: Into<io::Error>>(
    result: Result<T, E>,
    what: impl FnOnce() -> String,
) -> Result<T, AgentError> {
    result.map_err(|source| AgentError {
        what: what(),
        source: source.into(),
    })
}
