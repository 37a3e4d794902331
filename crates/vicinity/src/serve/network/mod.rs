//! One network: its state, which only its task ([`task`]) changes. The other files are what the task does with
//! it: ports come and go ([`ports`]), a changed configuration comes into force ([`config_apply`]), the data
//! plane is started again ([`restart`]), captures and mirrors are ordered ([`subscriptions`], [`mirrors`]), and
//! the control API gets its answer ([`status_reply`]).

mod config_apply;
pub(super) mod config_diff;
mod folder;
pub(super) mod message;
mod mirrors;
mod port;
mod ports;
mod quarantine;
pub(super) mod resources;
mod restart;
mod status_reply;
mod subscriptions;
mod task;
mod uplink;
pub(super) mod watch;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use switch::control::{PortId, WorkerReport};
use tokio::sync::{mpsc, oneshot};

use self::message::{Answer, Message};
use self::port::Port;
use self::watch::Watch;
use super::process::handle::Process;
use super::process::launch::Launch;
use super::process::lifecycle::Lifecycle;
use super::process::pending_request::PendingRequest;
use super::runtime_dir::Folder;
use crate::config;

/// The ports that each port's frames are copied to, as the data plane knows it.
pub(super) type Mirrors = BTreeMap<PortId, Vec<PortId>>;

/// A network at work.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: config::Network,
    pub(super) launch: Launch,
    pub(super) plane: Process,
    pub(super) lifecycle: Lifecycle,
    pub(super) watch: folder::Watch,
    pub(super) ports: BTreeMap<PortId, Port>,
    /// Ports that were removed and whose memory the data plane may still have.
    pub(super) leaving: BTreeMap<PortId, Port>,
    /// Who waits for them to be gone.
    pub(super) changing: Vec<oneshot::Sender<()>>,
    /// Who sees which port's frames.
    pub(super) watches: Vec<Watch>,
    /// Whose frames are copied to whom.
    pub(super) mirrors: Mirrors,
    /// The uplink's port and its queues, kept for the next data plane.
    pub(super) uplink: Option<(PortId, Vec<OwnedFd>)>,
    inbox: mpsc::Receiver<Message>,
    /// For the tasks that bring connections.
    pub(super) sender: mpsc::Sender<Message>,
    /// Who wants to know the state, and until when the data plane may take to tell it.
    pub(super) pending: PendingRequest<Answer>,
    pub(super) worker: WorkerReport,
    /// Why the data plane is gone.
    pub(super) trouble: Option<String>,
    _folder: Folder,
}
