//! The messages that a network's task receives, and its answer to a request for the state.

use switch::control::PortId;
use tokio::sync::oneshot;

use super::config_diff::Change;
use super::watch::{WatchError, Watched};
use crate::serve::connections::Connection;
use crate::status::{FdbEntryStatus, NetworkStatus, PortStatus};

/// A message to a network's task.
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
    /// A client asks for the state.
    Ask(oneshot::Sender<Answer>),
    /// A client asks for the entries of the FDB. Without a data plane there is no answer.
    ListFdb(oneshot::Sender<Vec<FdbEntryStatus>>),
    /// A client subscribes to the frames of the named port, with at most so many bytes of each.
    Watch(String, u32, oneshot::Sender<Result<Watched, WatchError>>),
    /// The subscription with this number at this port ends.
    Unwatch(PortId, u32),
    /// The configuration changed. The answer comes when the change is in force and removed ports are detached.
    Change(Box<Change>, oneshot::Sender<()>),
    /// Stop the data plane, and end the task.
    Stop,
}

/// A network's state and that of its ports.
#[derive(Clone, Debug)]
pub(in crate::serve) struct Answer {
    pub(in crate::serve) network: NetworkStatus,
    pub(in crate::serve) ports: Vec<PortStatus>,
}
