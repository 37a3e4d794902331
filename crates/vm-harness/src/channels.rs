//! Opens channels by their names.

use crate::bridge::Bridge;
use crate::channel::{Channel, Setting};
use crate::direct::Direct;
use crate::error::{Error, Result};
use crate::switch::Switch;

/// Opens the channel called `bridge` (tap and Linux bridge), `switch` (Vicinity's) or `direct` (VMs
/// that see each other's memory).
///
/// # Errors
/// There is no such channel, or the host cannot open it.
pub fn open(name: &str, setting: &Setting<'_>) -> Result<Box<dyn Channel>> {
    match name {
        "bridge" => Ok(Box::new(Bridge::new(setting.accel)?)),
        "switch" => Ok(Box::new(Switch::start(setting)?)),
        "direct" => Ok(Box::new(Direct::new(setting)?)),
        _ => Err(Error::Host(format!(
            "no channel is called `{name}`; there are `bridge`, `switch` and `direct`"
        ))),
    }
}
