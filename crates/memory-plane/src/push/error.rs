//! The errors of a push.

/// Most bytes of a store's error message that are reported.
const MAX_REASON: usize = 200;

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// No connection could be made.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// The connection failed.
    #[error("the connection to the store: {0}")]
    Connection(#[from] std::io::Error),
    /// The HTTP exchange failed.
    #[error("the connection to the store: {0}")]
    Http(#[from] hyper::Error),
    /// The store closed the connection before its response.
    #[error("the store ended the connection without an answer")]
    Ended,
    /// The connection made no progress in time.
    #[error("the store stalled")]
    Stalled,
    /// The store refused the file.
    #[error("the store answered {0}")]
    Refused(String),
    /// The file's name cannot be put into a request.
    #[error("its name cannot be sent to the store: rename the file")]
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
