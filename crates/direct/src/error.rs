//! The errors of the direct channel.

use crate::limits;

/// The reason why a VM cannot be a member, or a group cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The kernel refused a system call.
    #[error("cannot {what}: {source}")]
    Io {
        /// What this process tried to do.
        what: String,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// QEMU's monitor refused a command.
    #[error("QEMU refused {command}: {reason}")]
    Refused {
        /// The command.
        command: String,
        /// QEMU's own words.
        reason: String,
    },
    /// QEMU's monitor sent a reply that cannot be parsed, or none.
    #[error("QEMU's monitor sent no valid answer to {0}")]
    Monitor(String),
    /// The VM's memory cannot be shared as it is.
    #[error("{0}")]
    Memory(String),
    /// The VM has a device of the host, by VFIO.
    #[error(
        "the VM has a device of the host (VFIO, `{0}`): QEMU would pin the RAM of every member for that device, \
            and the VM would end if the host refuses. Remove the device from the VM, or the VM from the group"
    )]
    Passthrough(String),
    /// The VM's memory is encrypted, or private to the guest.
    #[error(
        "the VM's memory is encrypted (SEV or TDX, `{0}`): its peers would read ciphertext or zeros from its RAM. \
         Start the VM without `confidential-guest-support`, or take the VM out of the group and use its NIC"
    )]
    Encrypted(String),
    /// The group has more members than a window has room for.
    #[error("a trust group has at most {} members; remove some", limits::MEMBERS)]
    TooMany,
}

/// Adds to a system error what was tried.
pub(crate) fn io<T, E: Into<std::io::Error>>(
    result: Result<T, E>,
    what: impl FnOnce() -> String,
) -> Result<T, DirectError> {
    result.map_err(|source| DirectError::Io {
        what: what(),
        source: source.into(),
    })
}
