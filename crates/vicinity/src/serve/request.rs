//! Requests to the supervisor, why it refuses them, and the senders of the tasks that it supervises.

use tokio::sync::{mpsc, oneshot};

use super::direct_groups::{self, GroupError};
use super::memory_plane::orchestrator;
use super::memory_plane::space_task::{self, SpaceError};
use super::message_plane::{self, ResourcesError};
use super::network::message::Message;
use super::network::resources::NetworkResourcesError;
use super::vsock::{self, VsockError};
use crate::config::{ConfigError, Edit, EditError, SaveError, Source};

/// A change that a client requests.
#[derive(Debug)]
pub(super) enum ChangeRequest {
    /// Read the configuration file again.
    Reload,
    /// Take this text as the configuration.
    Replace(String),
    /// Change the text of the configuration.
    Edit(Edit),
    /// Change nothing, and return what is in force.
    Show,
}

/// A request, and where its result goes.
pub(super) type Request = (ChangeRequest, oneshot::Sender<Result<Source, ChangeError>>);

/// Why a change was refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The configuration, or what it would become.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What the client wants to change does not exist, or exists already.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// The key can change only when the daemon starts.
    #[error("`{key}` cannot change while the daemon runs; restart the daemon")]
    Fixed {
        /// The key of the configuration.
        key: &'static str,
    },
    /// Sockets of the message plane, or its uplink.
    #[error("the message plane: {0}")]
    Members(#[from] ResourcesError),
    /// A trust group of the direct channel.
    #[error("group {name}: {source}")]
    Group {
        /// Its name.
        name: String,
        /// What is missing.
        source: GroupError,
    },
    /// A space of the memory plane.
    #[error("space of {vm}: {source}")]
    Space {
        /// Whose it is.
        vm: String,
        /// What is missing.
        source: SpaceError,
    },
    /// The socket devices of some VMs.
    #[error("the socket device of {vm}: {source}")]
    Vsock {
        /// The first of them.
        vm: String,
        /// What is missing.
        source: VsockError,
    },
    /// The system refuses something that a network needs.
    #[error("network {network}: {source}")]
    Resources {
        /// The network.
        network: String,
        /// What is missing.
        source: NetworkResourcesError,
    },
    /// A data plane cannot be started.
    #[error("{whose}: the supervisor cannot start its data plane: {source}")]
    Start {
        /// A network, or the message plane.
        whose: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The new configuration cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// The senders of all tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    pub(super) networks: Vec<(String, mpsc::Sender<Message>)>,
    pub(super) messages: Option<mpsc::Sender<message_plane::Message>>,
    pub(super) groups: Vec<mpsc::Sender<direct_groups::Message>>,
    pub(super) spaces: Vec<mpsc::Sender<space_task::Message>>,
    pub(super) orchestrator: Option<mpsc::Sender<orchestrator::Message>>,
    pub(super) vsocks: Vec<mpsc::Sender<vsock::Message>>,
}
