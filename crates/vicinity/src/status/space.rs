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
    /// Its process runs.
    pub(crate) up: bool,
    /// How often the process was started again. What was being written went with it each time.
    pub(crate) restarts: u64,
    /// Why it does not run, or did not the last time.
    pub(crate) reason: Option<String>,
    /// Where clients fetch.
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// With TLS.
    pub(crate) tls: bool,
    /// Bytes a second that are sent at most, if there is a limit.
    pub(crate) rate: Option<u64>,
    /// Where files are pushed to.
    pub(crate) push: Option<String>,
    /// What there is; all 0 while it does not run.
    #[serde(flatten, serialize_with = "renamed::figures")]
    pub(crate) figures: Figures,
}

/// How the budget of slots is shared out, as `GET /v1/space-control` tells it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlStatus {
    /// Slots for the spaces that have no number of their own.
    pub(crate) budget: u32,
    /// Of these, those that no space has.
    pub(crate) free: u32,
    /// How many times as long objectives take, for want of budget.
    pub(crate) stretch: f64,
    /// What one more slot would bring: weighted slots a second that no job would wait for.
    pub(crate) price: f64,
    /// The host is short of memory, and nothing grows.
    pub(crate) pressure: bool,
    /// The spaces.
    pub(crate) spaces: Vec<ControlledStatus>,
    /// What was decided lately, the oldest first; what only says the same again is left out.
    pub(crate) decisions: Vec<DecisionStatus>,
}

/// A space that the controller sizes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ControlledStatus {
    /// The VM.
    pub(crate) vm: String,
    /// Slots it has.
    pub(crate) slots: u32,
    /// Why.
    pub(crate) reason: Option<Reason>,
    /// What keeps it from its objective, if memory does not.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// Expected seconds to a slot, in the mean.
    pub(crate) predicted: Option<f64>,
    /// Measurements of its last window of time.
    #[serde(serialize_with = "renamed::window")]
    pub(crate) window: Window,
}

/// A decision about a space.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DecisionStatus {
    /// When, in seconds since 1970.
    pub(crate) at: f64,
    /// The VM.
    pub(crate) vm: String,
    /// Slots it had.
    pub(crate) before: u32,
    /// Slots it was to have from then on.
    pub(crate) slots: u32,
    /// Why.
    pub(crate) reason: Reason,
    /// What kept it from its objective, if memory did not.
    pub(crate) bottleneck: Option<Bottleneck>,
    /// Expected seconds to a slot, in the mean.
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
