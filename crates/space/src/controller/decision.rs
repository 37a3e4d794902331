//! A decision of the controller: the number of slots of one space.

use serde::Serialize;

use crate::demand::Bottleneck;
use crate::resize_policy::Reason;

/// A space's number.
pub type Id = u32;

/// One change, or none, and why.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// The space.
    pub space: Id,
    /// Slots it has from now on.
    pub slots: u32,
    /// Slots it had.
    pub before: u32,
    /// Why.
    pub reason: Reason,
    /// What keeps it from its objective, if memory does not.
    pub bottleneck: Option<Bottleneck>,
    /// The mean time to a slot that is expected with these slots, if anything is.
    pub predicted: Option<f64>,
}
