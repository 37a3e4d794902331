//! The errors of a push.

/// Most of what a store says that is told, in bytes.
const MAX_WORDS: usize = 200;

/// Why a file is not with the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PushError {
    /// There is no connection.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// It ended, or is no good.
    #[error("the connection to the store: {0}")]
    Connection(#[from] std::io::Error),
    /// What was said on it is not HTTP, or it ended.
    #[error("the connection to the store: {0}")]
    Http(#[from] hyper::Error),
    /// It ended before an answer.
    #[error("the store ended the connection without an answer")]
    Ended,
    /// Nothing moved.
    #[error("the store stalled")]
    Stalled,
    /// The store does not want it.
    #[error("the store answered {0}")]
    Refused(String),
    /// No request can be made for it.
    #[error("its name cannot be said to the store")]
    Name,
}

impl PushError {
    /// In the store's words, as far as they can be shown.
    pub(super) fn refused(words: &[u8]) -> Self {
        let words = words.get(..MAX_WORDS).unwrap_or(words);
        let words = String::from_utf8_lossy(words);
        Self::Refused(words.trim().escape_debug().to_string())
    }

    /// Whether it is about this file alone, and the connection is well.
    pub(super) fn is_of_the_file(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Name)
    }
}
