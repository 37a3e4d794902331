//! What others tell a network, and what it answers.

use switch::control::PortId;
use tokio::sync::oneshot;

use super::config_diff::Change;
use super::watch::{WatchError, Watched};
use crate::serve::connections::Connection;
use crate::status::{NetworkStatus, PortStatus};

/// What others tell a network.
#[derive(Debug)]
pub(in crate::serve) enum Message {
    /// A front-end is connected.
    Connected(PortId, Connection),
    /// A front-end cannot be connected to.
    Unreachable {
        /// Which port's.
        port: PortId,
        /// Why.
        reason: String,
    },
    /// Somebody wants to know the state.
    Ask(oneshot::Sender<Answer>),
    /// Somebody wants to see a port's frames, so many bytes of each.
    Watch(String, u32, oneshot::Sender<Result<Watched, WatchError>>),
    /// He does no more.
    Unwatch(PortId, u32),
    /// The configuration changed; told when the change is in force and those that left are gone.
    Change(Box<Change>, oneshot::Sender<()>),
    /// Stop the data plane and end.
    Stop,
}

/// A network's state and that of its ports.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Answer {
    pub(in crate::serve) network: NetworkStatus,
    pub(in crate::serve) ports: Vec<PortStatus>,
}
