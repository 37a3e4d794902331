//! The state of the memory plane in the control API.

use memory_plane::Figures;
use serde::{Deserialize, Serialize};
use space::controller::Decision;
use space::demand::Bottleneck;
use space::estimator::Window;
use space::resize_policy::Reason;

use super::renamed;

/// A VM's space, as `GET /v1/spaces` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SpaceStatus {
    /// The VM.
    pub(crate) vm: String,
    /// Whether its process runs.
    pub(crate) up: bool,
    /// How often the supervisor restarted the process. Each time, files that were open for writing were lost.
    pub(crate) restarts: u64,
    /// The reason why the process does not run, or why the last one ended.
    pub(crate) reason: Option<String>,
    /// The address at which clients fetch files.
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// Whether clients use TLS.
    pub(crate) tls: bool,
    /// The limit of the send rate in bytes a second, if there is one.
    pub(crate) rate: Option<u64>,
    /// The store to which files are pushed.
    pub(crate) push: Option<String>,
    /// The figures of the process; all 0 while it does not run.
    #[serde(flatten, serialize_with = "renamed::figures")]
    pub(crate) figures: Figures,
}

/// How the controller divides the budget of slots, as `GET /v1/space-control` returns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlStatus {
    /// Slots for the spaces without a configured number of slots.
    pub(crate) budget: u32,
    /// Slots of the budget that no space has.
    pub(crate) free: u32,
    /// Factor by which the budget lengthens the times of the objectives.
    pub(crate) stretch: f64,
    /// The shadow price: weighted slots a second for which no job would wait if the budget had one slot more.
    pub(crate) price: f64,
    /// Whether the host is short of memory, so that no space grows.
    pub(crate) pressure: bool,
    /// The spaces.
    pub(crate) spaces: Vec<ControlledStatus>,
    /// The recent decisions, the oldest first, without those that repeat the previous one.
    pub(crate) decisions: Vec<DecisionStatus>,
}

/// A space that the controller sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlledStatus {
    /// The VM.
    pub(crate) vm: String,
    /// Its number of slots.
    pub(crate) slots: u32,
    /// The reason of the decision.
    pub(crate) reason: Option<Reason>,
    /// The bottleneck, if it is not the number of slots.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// The predicted mean time to a slot, in seconds.
    pub(crate) predicted: Option<f64>,
    /// The measurements of the last window.
    #[serde(serialize_with = "renamed::window")]
    pub(crate) window: Window,
}

/// A decision about a space.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DecisionStatus {
    /// The time of the decision, in seconds since 1970.
    pub(crate) at: f64,
    /// The VM.
    pub(crate) vm: String,
    /// The number of slots before the decision.
    pub(crate) before: u32,
    /// The number of slots that the controller decided on.
    pub(crate) slots: u32,
    /// The reason of the decision.
    pub(crate) reason: Reason,
    /// The bottleneck, if it was not the number of slots.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// The predicted mean time to a slot, in seconds.
    pub(crate) predicted: Option<f64>,
}

impl DecisionStatus {
    pub(crate) fn new(at: f64, vm: &str, decision: &Decision) -> Self {
        Self {
            at,
            vm: vm.to_owned(),
            before: decision.before,
            slots: decision.slots,
            reason: decision.reason,
            bottleneck: decision.bottleneck,
            predicted: decision.predicted,
        }
    }
}
