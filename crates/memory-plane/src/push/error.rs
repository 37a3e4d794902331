//! The errors of a push.

/// Most bytes of a store's error message that are reported.
const MAX_REASON: usize = 200;

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// No connection could be made.
    #[error("cannot reach the store: {0}; check `push` and the network")]
    Unreachable(String),
    /// The connection failed.
    #[error("the connection to the store failed: {0}")]
    Connection(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("the connection to the store failed: {0}")]
    Http(#[from] hyper::Error),
    /// The store closed the connection before its response.
    #[error("the store closed the connection without an answer")]
    Ended,
    /// The connection made no progress in time.
    #[error("the store stopped receiving the file")]
    Stalled,
    /// The store refused the file.
    #[error("the store answered {0}")]
    Refused(String),
    /// The file's name cannot be put into a request.
    #[error("a request cannot contain the file's name; rename the file")]
    Name,
}

impl PushError {
    /// Returns a refusal with the store's message, shortened and escaped.
    pub(super) fn refused(reason: &[u8]) -> Self {
        let reason = reason.get(..MAX_REASON).unwrap_or(reason);
        let reason = String::from_utf8_lossy(reason);
        Self::Refused(reason.trim().escape_debug().to_string())
    }

    /// Returns whether the error concerns this file only, so the connection remains usable.
    pub(super) fn is_file_error(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Name)
    }
}
