//! What clients want of the supervisor, why it may refuse, and where what it supervises can be reached.

use tokio::sync::{mpsc, oneshot};

use super::direct_groups::{self, GroupError};
use super::memory_plane::orchestrator;
use super::memory_plane::space_task::{self, SpaceError};
use super::message_plane::{self, ResourcesError};
use super::network::message::Message;
use super::network::resources::NetworkResourcesError;
use crate::config::{ConfigError, Edit, EditError, SaveError, Source};

/// What a client wants to be changed.
#[derive(Debug)]
pub(super) enum ChangeRequest {
    /// Read the file again.
    Reload,
    /// Take this text.
    Replace(String),
    /// Change the text.
    Edit(Edit),
    /// Nothing: tell what is in force.
    Show,
}

/// A wish, and who waits for the answer.
pub(super) type Request = (ChangeRequest, oneshot::Sender<Result<Source, ChangeError>>);

/// Why a change was refused. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The configuration, or what it would become.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// What is to be changed is not there, or is there already.
    #[error(transparent)]
    Edit(#[from] EditError),
    /// Only a new daemon can have another one.
    #[error("`{key}` cannot change while vicinity serves: restart it")]
    Fixed {
        /// Of the configuration.
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
    /// Something the system does not give.
    #[error("network {network}: {source}")]
    Resources {
        /// The network.
        network: String,
        /// What is missing.
        source: NetworkResourcesError,
    },
    /// A data plane cannot be started.
    #[error("{whose}: its data plane cannot be started: {source}")]
    Start {
        /// A network, or the message plane.
        whose: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The new configuration cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
}

/// Where the networks and the message plane can be reached.
#[derive(Clone, Debug, Default)]
pub(super) struct Addresses {
    pub(super) networks: Vec<(String, mpsc::Sender<Message>)>,
    pub(super) messages: Option<mpsc::Sender<message_plane::Message>>,
    pub(super) groups: Vec<mpsc::Sender<direct_groups::Message>>,
    pub(super) spaces: Vec<mpsc::Sender<space_task::Message>>,
    pub(super) orchestrator: Option<mpsc::Sender<orchestrator::Message>>,
}
