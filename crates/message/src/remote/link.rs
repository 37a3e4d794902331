//! A link between two endpoints, as the switchboard keeps it.

use super::control_message::LinkId;
use super::relay::Relay;
use crate::address::Address;

/// What joins two endpoints.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// Whom it joins: who connected, and to whom.
    pub(super) between: [Address; 2],
    /// None when both have the same window.
    pub(super) relay: Option<Relay>,
    pub(super) up: bool,
    /// This end is closed, and the other is told when it has been sent the rest.
    pub(super) draining: bool,
    /// One end does not answer any more.
    pub(super) lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) seat: usize,
    pub(super) id: LinkId,
    pub(super) window: u32,
    pub(super) closed: bool,
    /// Its gateway ended before it, so somebody may still use the window.
    pub(super) stale: bool,
}
