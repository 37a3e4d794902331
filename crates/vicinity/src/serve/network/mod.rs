//! One network: its state, which only its task ([`task`]) changes. The other files are what the task does with
//! it: ports come and go ([`ports`]), a changed configuration comes into force ([`config_apply`]), the data
//! plane is started again ([`restart`]), captures and mirrors are ordered ([`subscriptions`], [`mirrors`]), and
//! the control API gets its answer ([`status_reply`], [`fdb_reply`]).

mod config_apply;
pub(super) mod config_diff;
mod fdb_list;
mod fdb_reply;
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

use switch::control::{PortId, RemotePeer, WorkerReport};
use tokio::sync::{mpsc, oneshot};

use self::fdb_list::FdbList;
use self::message::{Answer, Message};
use self::port::Port;
use self::watch::Watch;
use super::process::handle::Process;
use super::process::launch::Launch;
use super::process::lifecycle::Lifecycle;
use super::process::pending_request::PendingRequest;
use super::runtime_dir::Folder;
use crate::config;

/// The ports to which each port's frames are copied, as last sent to the data plane.
pub(super) type Mirrors = BTreeMap<PortId, Vec<PortId>>;

/// A running network.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) config: config::Network,
    pub(super) launch: Launch,
    pub(super) plane: Process,
    pub(super) lifecycle: Lifecycle,
    pub(super) watch: folder::Watch,
    pub(super) ports: BTreeMap<PortId, Port>,
    /// Removed ports that the data plane has not detached yet: it may still map their memory.
    pub(super) leaving: BTreeMap<PortId, Port>,
    /// Clients that wait until these are detached.
    pub(super) changing: Vec<oneshot::Sender<()>>,
    /// Subscriptions to the frames of ports.
    pub(super) watches: Vec<Watch>,
    /// The mirror ports of each port.
    pub(super) mirrors: Mirrors,
    /// The uplink's port and its queues, kept for the next data plane.
    pub(super) uplink: Option<(PortId, Vec<OwnedFd>)>,
    inbox: mpsc::Receiver<Message>,
    /// Duplicated for the tasks that accept and dial connections.
    pub(super) sender: mpsc::Sender<Message>,
    /// The outstanding request for the state, and the clients that wait for it.
    pub(super) pending: PendingRequest<Answer>,
    pub(super) worker: WorkerReport,
    /// The remote peers of all ports, as last reported.
    pub(super) remote_peers: Vec<RemotePeer>,
    /// Those of the report that is under way.
    pub(super) arriving_remote_peers: Vec<RemotePeer>,
    /// The list of FDB entries that clients wait for.
    pub(super) fdb_list: FdbList,
    /// Why the data plane does not run.
    pub(super) failure_reason: Option<String>,
    _folder: Folder,
}
