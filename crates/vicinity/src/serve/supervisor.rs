//! The networks of the daemon, its message plane, trust groups and spaces, and how networks and spaces
//! change while they are at work.
//!
//! One change at a time. The new configuration is checked as a whole, then everything it needs is
//! taken from the system, then it is written to its file, and only then does anything change: from
//! there on nothing can fail. So a change that is refused has changed nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::direct_groups::{self, Group, GroupError};
use super::memory_plane::space_task::SpaceError;
use super::memory_plane::{self, MemoryPlane};
use super::message_plane::{self, Messages, PlaneResources};
use super::network::Network;
use super::network::config_diff::Change;
use super::network::message::Message;
use super::network::resources::NetworkResources;
use super::process::launch::Launch;
use super::request::{Addresses, ChangeError, ChangeRequest, Request};
use super::runtime_dir::Folder;
use super::systemd::fd_store::FdStore;
use super::systemd::notify::Reloading;
use super::vsock::{self, VsockError, VsockTask, directory};
use crate::config::{self, Config, Source};
use crate::runtime_paths::{VSOCK_FOLDER, direct_folder};

/// Requests that may wait; further clients wait until there is room.
const INBOX: usize = 16;

/// Longest wait until a network has ended, or until a change is in force everywhere. The next change, and the
/// watchdog, wait meanwhile.
const IN_FORCE: Duration = Duration::from_secs(6);

/// All tasks of the daemon, and the configuration in force.
pub(super) struct Supervisor {
    source: Source,
    config: Config,
    launch: Launch,
    /// In the order of the configuration.
    networks: Vec<(String, mpsc::Sender<Message>)>,
    messages: Option<mpsc::Sender<message_plane::Message>>,
    groups: Vec<mpsc::Sender<direct_groups::Message>>,
    /// The folder of the trust groups.
    folder: Option<Folder>,
    spaces: MemoryPlane,
    vsocks: Vec<mpsc::Sender<vsock::Message>>,
    /// The folder of the sockets plane.
    vsock_folder: Option<Folder>,
    tasks: JoinSet<()>,
    inbox: mpsc::Receiver<Request>,
    addresses: watch::Sender<Addresses>,
}

/// A checked change with all that it needs.
struct Plan {
    source: Source,
    config: Config,
    started: Vec<Network>,
    changes: Vec<(String, Change)>,
    spaces: memory_plane::Change,
}

impl Supervisor {
    /// Returns a supervisor that serves no network yet, and the sender for requests. `kept` is what the service
    /// manager kept.
    pub(super) fn new(
        source: Source,
        config: Config,
        launch: Launch,
        kept: FdStore,
    ) -> (Self, mpsc::Sender<Request>) {
        let (sender, inbox) = mpsc::channel(INBOX);
        let supervisor = Self {
            source,
            config,
            launch,
            networks: Vec::new(),
            messages: None,
            groups: Vec::new(),
            folder: None,
            spaces: MemoryPlane::new(kept),
            vsocks: Vec::new(),
            vsock_folder: None,
            tasks: JoinSet::new(),
            inbox,
            addresses: watch::Sender::new(Addresses::default()),
        };
        (supervisor, sender)
    }

    /// Starts every network of the configuration, the message plane, the trust groups and the spaces, or nothing.
    pub(super) async fn start(&mut self) -> Result<(), ChangeError> {
        let started = self.start_networks(self.config.networks.iter())?;
        self.start_messages()?;
        self.start_groups()?;
        self.start_vsocks()?;
        let spaces = self.spaces.prepare(&self.config, &self.launch);
        let spaces = spaces.map_err(refused_space)?;
        self.spaces.apply(spaces, &mut self.tasks).await;
        self.spaces.store.remove_unclaimed();
        for network in started {
            self.run_network(network);
        }
        self.publish();
        Ok(())
    }

    fn start_messages(&mut self) -> Result<(), ChangeError> {
        let members = self.config.members.clone();
        if members.is_empty() {
            return Ok(());
        }
        let uplink = self.config.message_uplink.as_ref();
        let group = self.config.message_unix_group;
        let resources = PlaneResources::take(&self.config.runtime_dir, members, uplink, group)?;
        let started = Messages::start(resources, self.launch.clone());
        let messages = started.map_err(|source| ChangeError::Start {
            whose: "the message plane".to_owned(),
            source,
        })?;
        self.messages = Some(messages.address());
        self.tasks.spawn(messages.run());
        Ok(())
    }

    fn start_groups(&mut self) -> Result<(), ChangeError> {
        for config in self.config.groups.clone() {
            let name = config.name.clone();
            let refused = |source| ChangeError::Group { name, source };
            let group = self.start_group(config).map_err(refused)?;
            self.groups.push(group.address());
            self.tasks.spawn(group.run());
        }
        Ok(())
    }

    fn start_group(&mut self, config: config::TrustGroup) -> Result<Group, GroupError> {
        let runtime_dir = &self.config.runtime_dir;
        if self.folder.is_none() {
            self.folder = Some(Folder::create(&direct_folder(runtime_dir))?);
        }
        Group::start(runtime_dir, config, self.launch.clone())
    }

    fn start_vsocks(&mut self) -> Result<(), ChangeError> {
        let runtime_dir = self.config.runtime_dir.clone();
        let directories = Arc::new(directory::all(&self.config));
        for set in config::separate(&self.config.vsocks) {
            let vm = set.first().map(|vsock| vsock.vm.clone());
            let refused = |source: VsockError| ChangeError::Vsock {
                vm: vm.unwrap_or_default(),
                source,
            };
            let task = self.start_vsock(&runtime_dir, set, Arc::clone(&directories));
            let task = task.map_err(refused)?;
            self.vsocks.push(task.address());
            self.tasks.spawn(task.run());
        }
        Ok(())
    }

    fn start_vsock(
        &mut self,
        runtime_dir: &Path,
        set: Vec<config::Vsock>,
        directories: vsock::Directories,
    ) -> Result<VsockTask, VsockError> {
        if self.vsock_folder.is_none() {
            self.vsock_folder = Some(Folder::create(&runtime_dir.join(VSOCK_FOLDER))?);
        }
        VsockTask::start(runtime_dir, set, directories, self.launch.clone())
    }

    /// Returns the senders of the tasks, now and after changes.
    pub(super) fn addresses(&self) -> watch::Receiver<Addresses> {
        self.addresses.subscribe()
    }

    /// Handles requests permanently. Not cancel safe, except between two requests: a request that was begun must be
    /// finished.
    pub(super) async fn run(&mut self) {
        while let Some((request, answer)) = self.inbox.recv().await {
            let result = self.handle(request).await;
            if let Err(refusal) = &result {
                tracing::warn!("refused a change of the configuration: {refusal}");
            }
            // The client may be gone.
            drop(answer.send(result));
        }
    }

    /// Stops all tasks, and waits for their ends. The trust groups end first: a QEMU whose NIC loses its connection
    /// opens sockets, which may get descriptor numbers of the device that the group unplugs; see
    /// `qemu_fd_workaround` of the crate `direct`. The guests use their NICs, too, when the group has ended.
    pub(super) async fn stop(mut self) {
        for group in &self.groups {
            drop(group.send(direct_groups::Message::Stop).await);
        }
        for group in &self.groups {
            // The task drops its inbox when it has ended.
            group.closed().await;
        }
        for (_, address) in &self.networks {
            // An error means that the network ended by itself.
            drop(address.send(Message::Stop).await);
        }
        if let Some(messages) = &self.messages {
            drop(messages.send(message_plane::Message::Stop).await);
        }
        for vsock in &self.vsocks {
            drop(vsock.send(vsock::Message::Stop).await);
        }
        self.spaces.stop().await;
        while self.tasks.join_next().await.is_some() {}
    }

    async fn handle(&mut self, request: ChangeRequest) -> Result<Source, ChangeError> {
        let _reloading = matches!(request, ChangeRequest::Reload).then(Reloading::begin);
        let (source, written) = match request {
            ChangeRequest::Show => return Ok(self.source.clone()),
            ChangeRequest::Reload => (self.source.reload()?, true),
            ChangeRequest::Replace(text) => (self.source.with(text), false),
            ChangeRequest::Edit(edit) => (self.source.with(edit.apply(self.source.text())?), false),
        };
        let plan = self.plan(source)?;
        if !written {
            plan.source.save(&self.source)?;
        }
        self.apply(plan).await;
        Ok(self.source.clone())
    }

    fn plan(&mut self, source: Source) -> Result<Plan, ChangeError> {
        let config = source.check()?;
        for (same, key) in [
            (config.runtime_dir == self.config.runtime_dir, "runtime-dir"),
            (config.members == self.config.members, "message"),
            (
                config.message_unix_group == self.config.message_unix_group,
                "message.unix-group",
            ),
            (
                config.message_uplink == self.config.message_uplink,
                "message.uplink",
            ),
            (config.groups == self.config.groups, "direct"),
            (config.vsocks == self.config.vsocks, "vsock"),
            (config.web == self.config.web, "web"),
            (
                config.space_budget.is_some() == self.config.space_budget.is_some(),
                "space-budget",
            ),
        ] {
            if !same {
                return Err(ChangeError::Fixed { key });
            }
        }
        let old = |name: &str| self.config.networks.iter().find(|old| old.name == name);
        let mut changes = Vec::new();
        for new in &config.networks {
            let change = old(&new.name).map_or(Ok(None), |old| Change::prepare(old, new));
            let change = change.map_err(|source| ChangeError::Resources {
                network: new.name.clone(),
                source,
            })?;
            changes.extend(change.map(|change| (new.name.clone(), change)));
        }
        let new = config.networks.iter();
        let new = new.filter(|network| old(&network.name).is_none());
        let started = self.start_networks(new)?;
        let spaces = self.spaces.prepare(&config, &self.launch);
        Ok(Plan {
            started,
            spaces: spaces.map_err(refused_space)?,
            source,
            config,
            changes,
        })
    }

    /// Takes what networks need from the system, then starts them. Dropping a network ends its data plane.
    fn start_networks<'a>(
        &self,
        networks: impl Iterator<Item = &'a config::Network>,
    ) -> Result<Vec<Network>, ChangeError> {
        let take = |network: &config::Network| {
            NetworkResources::take(network.clone()).map_err(|source| ChangeError::Resources {
                network: network.name.clone(),
                source,
            })
        };
        let parts = networks.map(take).collect::<Result<Vec<_>, _>>()?;
        let start = |parts: NetworkResources| {
            let whose = format!("network {}", parts.config.name);
            Network::start(parts, self.launch.clone())
                .map_err(|source| ChangeError::Start { whose, source })
        };
        parts.into_iter().map(start).collect()
    }

    async fn apply(&mut self, plan: Plan) {
        let keep = |name: &str| plan.config.networks.iter().any(|new| new.name == name);
        let networks = std::mem::take(&mut self.networks);
        let gone: Vec<_>;
        (self.networks, gone) = networks.into_iter().partition(|(name, _)| keep(name));
        for (name, address) in gone {
            tracing::info!(network = %name, "removed the network");
            drop(address.send(Message::Stop).await);
            // The task drops its inbox when it has ended.
            let _late = timeout(IN_FORCE, address.closed()).await;
        }
        for network in plan.started {
            self.run_network(network);
        }
        let mut waiting = Vec::new();
        for (name, change) in plan.changes {
            let address = self.networks.iter().find(|(known, _)| *known == name);
            if let Some((_, address)) = address {
                let (done, in_force) = oneshot::channel();
                let change = Box::new(change);
                drop(address.send(Message::Change(change, done)).await);
                waiting.push(in_force);
            }
        }
        let by = Instant::now() + IN_FORCE;
        for in_force in waiting {
            // An error means that the network ended meanwhile. If a data plane hangs, its removed ports are detached
            // when the data plane is killed.
            drop(timeout_at(by, in_force).await);
        }
        let place = |name: &String| {
            let mut networks = plan.config.networks.iter();
            networks.position(|network| network.name == *name)
        };
        self.networks.sort_by_key(|(name, _)| place(name));
        self.spaces.apply(plan.spaces, &mut self.tasks).await;
        (self.source, self.config) = (plan.source, plan.config);
        self.tell_directories().await;
        self.publish();
    }

    /// Addresses that VMs have now or no more take effect when their agents ask next.
    async fn tell_directories(&self) {
        let directories = Arc::new(directory::all(&self.config));
        for vsock in &self.vsocks {
            let message = vsock::Message::Directories(Arc::clone(&directories));
            // An error means that the task ended by itself.
            drop(vsock.send(message).await);
        }
    }

    fn run_network(&mut self, network: Network) {
        let name = network.config.name.clone();
        self.networks.push((name, network.address()));
        self.tasks.spawn(network.run());
    }

    fn publish(&self) {
        let (spaces, orchestrator) = self.spaces.addresses();
        self.addresses.send_replace(Addresses {
            networks: self.networks.clone(),
            messages: self.messages.clone(),
            groups: self.groups.clone(),
            spaces,
            orchestrator,
            vsocks: self.vsocks.clone(),
        });
    }
}

fn refused_space((vm, source): (String, SpaceError)) -> ChangeError {
    ChangeError::Space { vm, source }
}
