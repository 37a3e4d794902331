//! The live figures of a host: the report of the observer, the state of the daemon, and the problems.
//!
//! ```text
//!  observer's readings ─┐
//!                       ├─▶ Sampler ─▶ Live ─┬─▶ GET /v1/live, the page
//!  control API's state ─┘      │             ├─▶ top, top --record FILE
//!                              ▼             └─▶ (FILE) top --replay
//!                          Detector: which problems there are, and since when
//! ```
//!
//! One [`Live`] describes one interval. As JSON it is one line, in `/v1/live` as in a recording. The daemon makes it
//! while a client listens, and `vicinity top` makes it for itself.

mod condition;
mod detector;
mod explain;
mod names;
mod port;
mod problem;
mod recording;
mod remote_peer;
mod sampler;

use observe::report::Report;
use serde::{Deserialize, Serialize};

use crate::status::{GroupStatus, MessageStatus, NetworkStatus, PortStatus, SpaceStatus};

pub(crate) use detector::Detector;
pub(crate) use explain::explain;
pub(crate) use port::LivePort;
pub(crate) use problem::{Problem, ProblemKind, Severity};
pub(crate) use recording::{Recording, RecordingError};
pub(crate) use remote_peer::LiveRemotePeer;
pub(crate) use sampler::Sampler;

/// The version of the format. A reader refuses a newer one.
pub(crate) const VERSION: u32 = 1;

/// The figures of one interval.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Live {
    /// [`VERSION`].
    pub(crate) version: u32,
    /// The version of the program that made it.
    pub(crate) program: String,
    /// The end of the interval, in seconds since 1970.
    pub(crate) at: f64,
    /// What the host's CPUs did.
    #[serde(flatten)]
    pub(crate) report: Report,
    /// The problems, the worst first.
    #[serde(default)]
    pub(crate) problems: Vec<Problem>,
    /// The networks.
    #[serde(default)]
    pub(crate) networks: Vec<LiveNetwork>,
    /// Their ports.
    #[serde(default)]
    pub(crate) ports: Vec<LivePort>,
    /// What VMs exchanged with MAC addresses behind uplinks, those with the most bytes first.
    #[serde(default)]
    pub(crate) remote_peers: Vec<LiveRemotePeer>,
    /// The trust groups of the direct channel.
    #[serde(default)]
    pub(crate) direct: Vec<GroupStatus>,
    /// The spaces.
    #[serde(default)]
    pub(crate) spaces: Vec<SpaceStatus>,
    /// The message plane, if there is one.
    #[serde(default)]
    pub(crate) messages: Option<MessageStatus>,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveNetwork {
    /// Its name.
    pub(crate) name: String,
    /// Its data plane runs.
    pub(crate) up: bool,
    /// Times its data plane was started again.
    pub(crate) restarts: u64,
    /// Why it does not run.
    pub(crate) reason: Option<String>,
    /// Its uplink.
    pub(crate) uplink: Option<String>,
    /// FDB entries.
    pub(crate) fdb_entries: u32,
}

impl From<&NetworkStatus> for LiveNetwork {
    fn from(network: &NetworkStatus) -> Self {
        Self {
            name: network.name.clone(),
            up: network.up,
            restarts: network.restarts,
            reason: network.reason.clone(),
            uplink: network.uplink.clone(),
            fdb_entries: network.worker.fdb_entries,
        }
    }
}

/// What the control API says at one time. Empty without a daemon.
#[derive(Clone, Debug, Default)]
pub(crate) struct ApiState {
    /// The daemon's process id, if there is a daemon.
    pub(crate) pid: Option<u32>,
    /// Its networks.
    pub(crate) networks: Vec<NetworkStatus>,
    /// Their ports.
    pub(crate) ports: Vec<PortStatus>,
    /// The trust groups.
    pub(crate) direct: Vec<GroupStatus>,
    /// The spaces.
    pub(crate) spaces: Vec<SpaceStatus>,
    /// The message plane.
    pub(crate) messages: Option<MessageStatus>,
}

#[cfg(test)]
mod recording_tests;
#[cfg(test)]
pub(crate) mod tests;
