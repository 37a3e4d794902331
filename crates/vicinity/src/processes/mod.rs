//! The processes that the supervisor ([`crate::serve`]) starts, one place for each: its protocol with the
//! supervisor, and what it does from its start to its end.

pub(crate) mod data_plane;
pub(crate) mod direct_group;
pub(crate) mod message;
pub(crate) mod space;
pub(crate) mod start;
pub(crate) mod vsock;
