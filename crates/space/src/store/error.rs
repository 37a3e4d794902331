//! The errors of the store.

/// Why the store did not execute an operation. The guest causes all of these except [`HostMemory`](Self::HostMemory).
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Too few slots are free. The caller may retry when slots become free.
    #[error("the space is full")]
    Full,
    /// The file would be larger than the space can become.
    #[error("the file is larger than the space")]
    TooLarge,
    /// The store has [`MAX_NODES`](super::MAX_NODES) files and directories.
    #[error("the space has too many files and directories")]
    TooMany,
    /// No file or directory has this name or inode number.
    #[error("no such file or directory")]
    NotFound,
    /// A file or directory of this name exists.
    #[error("the name already exists")]
    AlreadyExists,
    /// The operation needs a directory, but this is a file.
    #[error("it is not a directory")]
    NotADirectory,
    /// The operation needs a file, but this is a directory.
    #[error("it is a directory")]
    IsADirectory,
    /// The directory is not empty.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is empty, `.`, `..`, too long, or contains a slash or a zero byte; or a directory would move into itself.
    #[error("the name is not valid")]
    InvalidName,
    /// The host failed to copy or zero the slots' memory, usually because no memory is available.
    #[error("cannot use the host's memory: {0}")]
    HostMemory(std::io::Error),
}
