//! A decision of the controller: the number of slots of one space.

use serde::Serialize;

use crate::demand::Bottleneck;
use crate::resize_policy::Reason;

/// Identifies a space.
pub type Id = u32;

/// A decision about one space: its new size and the reason. The size may be unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The space that the decision is about.
    pub space: Id,
    /// Number of slots from now on.
    pub slots: u32,
    /// Number of slots before.
    pub before: u32,
    /// The reason.
    pub reason: Reason,
    /// The station that keeps the space from its objective, if slots do not.
    pub bottleneck: Option<Bottleneck>,
    /// The predicted mean time to a slot in seconds, if the model can predict one.
    pub predicted: Option<f64>,
}
