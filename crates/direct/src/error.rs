//! The errors of the direct channel.

use crate::limits;

/// Why a VM cannot be a member, or the group cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The kernel refuses.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// QEMU's monitor refuses a command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's own words.
        reason: String,
    },
    /// QEMU's monitor says something that cannot be understood, or nothing.
    #[error("QEMU's monitor gave no usable answer to {0}")]
    Monitor(String),
    /// The VM's memory cannot be shared as it is.
    #[error("{0}")]
    Memory(String),
    /// The VM has a device of the host, by VFIO.
    #[error(
        "the VM has a device of the host (VFIO, `{0}`): QEMU would pin the RAM of every member for that device, \
         and end the VM if the host refuses. Take the device out of the VM, or the VM out of the group"
    )]
    Passthrough(String),
    /// More members than a window has room for.
    #[error("a group has at most {} members", limits::MEMBERS)]
    TooMany,
}

/// Name what was tried.
pub(crate) fn io<T, E: Into<std::io::Error>>(
    result: Result<T, E>,
    what: impl FnOnce() -> String,
) -> Result<T, DirectError> {
    result.map_err(|source| DirectError::Io {
        what: what(),
        source: source.into(),
    })
}
