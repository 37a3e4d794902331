//! A link between two endpoints, as the broker keeps it.

use super::control_message::LinkId;
use super::relay::Relay;
use crate::address::Address;

/// A link between two endpoints.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) ends: [End; 2],
    /// The two endpoints: the one that connected, and its target.
    pub(super) between: [Address; 2],
    /// `None` for a direct link.
    pub(super) relay: Option<Relay>,
    pub(super) up: bool,
    /// One end is closed, and the other is notified after it has received the rest.
    pub(super) draining: bool,
    /// One end does not answer any more.
    pub(super) lost: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) member: usize,
    pub(super) id: LinkId,
    pub(super) window: u32,
    pub(super) closed: bool,
    /// The gateway ended before this end was closed, so an endpoint may still use the window.
    pub(super) stale: bool,
}
