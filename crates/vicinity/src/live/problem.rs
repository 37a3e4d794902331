//! A problem: what is wrong, with which VM, since when, and the command that helps.

use serde::{Deserialize, Serialize};

/// A problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// What kind of problem.
    pub(crate) kind: ProblemKind,
    /// How bad it is.
    pub(crate) severity: Severity,
    /// The VM; absent for a problem of the daemon or of a network.
    pub(crate) vm: Option<String>,
    /// The network, if the problem is of a network or of a port.
    pub(crate) network: Option<String>,
    /// When the condition began, in seconds since 1970.
    pub(crate) since: f64,
    /// What is wrong, in one or two sentences.
    pub(crate) text: String,
    /// A command line that helps or that shows more; absent if a name cannot be written in one.
    pub(crate) remedy: Option<String>,
}

impl Problem {
    /// Returns for how long the condition has held at `at`, in seconds since 1970, as a text.
    pub(crate) fn held(&self, at: f64) -> String {
        let seconds = (at - self.since).max(0.0);
        match seconds {
            ..120.0 => format!("{seconds:.0} s"),
            ..7200.0 => format!("{:.0} min", seconds / 60.0),
            _ => format!("{:.0} h", seconds / 3600.0),
        }
    }
}

/// How bad a problem is. The first is the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Severity {
    /// Traffic is lost or stands still.
    Critical,
    /// Traffic is slower than it could be, or will be at risk.
    Warning,
}

/// The kinds of problems, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProblemKind {
    /// A network's data plane does not run.
    NetworkDown,
    /// The message plane's data plane does not run.
    MessagePlaneDown,
    /// A VM's memory is private to its QEMU.
    PrivateMemory,
    /// The supervisor refuses a port's front-end.
    Quarantined,
    /// An uplink has failed.
    PortDown,
    /// A guest takes no frames, and frames wait for it.
    ReceiverStuck,
    /// Two ports use the same MAC address.
    DuplicateAddress,
    /// The process of a space does not run.
    SpaceDown,
    /// Writes of a VM wait for slots of its space.
    SpaceWaits,
    /// A VM does not share memory with its trust group.
    DirectLeft,
    /// A network's data plane was started again.
    DataPlaneRestarted,
    /// A guest's vCPUs wait for a CPU.
    GuestWaits,
    /// A VM's back-end waits for a CPU.
    BackendWaits,
    /// A cap on a VM's control group holds the VM back.
    Throttled,
}

impl ProblemKind {
    /// Returns how bad a problem of this kind is.
    pub(crate) fn severity(self) -> Severity {
        match self {
            Self::NetworkDown
            | Self::MessagePlaneDown
            | Self::PrivateMemory
            | Self::Quarantined
            | Self::PortDown
            | Self::ReceiverStuck
            | Self::DuplicateAddress
            | Self::SpaceDown => Severity::Critical,
            Self::SpaceWaits
            | Self::DirectLeft
            | Self::DataPlaneRestarted
            | Self::GuestWaits
            | Self::BackendWaits
            | Self::Throttled => Severity::Warning,
        }
    }
}
