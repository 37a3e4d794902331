//! Why an uplink could not be opened.

use rustix::io::Errno;

use super::tap::TapError;

/// Why an uplink could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UplinkError {
    /// A tap could not be opened.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The interface does not exist.
    #[error(
        "there is no interface {name} for the uplink; `ip link` lists the interfaces. To let Vicinity create a \
            tap, use `tap` instead of `interface`"
    )]
    Missing {
        /// The interface.
        name: String,
    },
    /// The daemon lacks the permission.
    #[error(
        "the daemon may not use interface {name}; run it as root, or with CAP_NET_RAW, and for `xdp` also with \
            CAP_NET_ADMIN and CAP_BPF"
    )]
    Forbidden {
        /// The interface.
        name: String,
    },
    /// The kernel reported another error.
    #[error("interface {name}: the kernel refused to {step}: {source}")]
    Refused {
        /// The interface.
        name: String,
        /// The refused operation.
        step: &'static str,
        /// The kernel's error.
        source: Errno,
    },
}

/// Returns a function that adds the interface's name and the refused operation to a kernel error.
pub(super) fn refused(name: &str, step: &'static str) -> impl FnOnce(Errno) -> UplinkError {
    let name = name.to_owned();
    move |source| match source {
        Errno::PERM | Errno::ACCESS => UplinkError::Forbidden { name },
        source => UplinkError::Refused { name, step, source },
    }
}
