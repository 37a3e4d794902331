//! The state of the sockets plane in the control API.

use serde::{Deserialize, Serialize};
use vsock::figures::Figures;

/// A VM's socket device, as `GET /v1/vsock` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct VsockStatus {
    /// The VM.
    pub(crate) vm: String,
    /// Its CID.
    pub(crate) cid: u32,
    /// The groups in which it may connect to others.
    pub(crate) groups: Vec<String>,
    /// Whether the process runs that serves it.
    pub(crate) up: bool,
    /// How often the supervisor restarted the process. Each time, the VM's connections were reset.
    pub(crate) restarts: u64,
    /// The reason why the process does not run, or why the last front-end was dropped.
    pub(crate) reason: Option<String>,
    /// Whether `vicinity-agent` of the VM has asked for the addresses of its peers in the last 20 s.
    #[serde(default)]
    pub(crate) agent: bool,
    /// The figures.
    #[serde(flatten)]
    pub(crate) figures: Figures,
}
