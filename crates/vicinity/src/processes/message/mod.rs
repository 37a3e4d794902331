//! The processes of the message plane.

pub(crate) mod switchboard;
pub(crate) mod uplink;
