//! What a store refuses.

/// Why something was not done. All but [`Host`](Self::Host) are the guest's doing.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Slots are missing: wait until some return, or give up.
    #[error("the space is full")]
    Full,
    /// A file cannot be larger than the space can ever be.
    #[error("larger than the space")]
    TooLarge,
    /// Too many files and folders.
    #[error("too many files and folders")]
    TooMany,
    /// There is none of this name or number.
    #[error("no such file or folder")]
    NotFound,
    /// There is one of this name already.
    #[error("it exists already")]
    AlreadyExists,
    /// A file stands where a folder is needed.
    #[error("not a folder")]
    NotADirectory,
    /// A folder stands where a file is needed.
    #[error("a folder")]
    IsADirectory,
    /// A folder has something in it.
    #[error("the folder is not empty")]
    NotEmpty,
    /// A name is empty, too long, or has a slash; or a folder is to be moved into itself.
    #[error("an impossible name")]
    InvalidName,
    /// The host has no memory.
    #[error("the host's memory: {0}")]
    Host(std::io::Error),
}
