//! The memory plane as a whole: the spaces, and the orchestrator that sizes those that have no number
//! of slots of their own.
//!
//! Spaces are added and removed while others serve. Of a running space only the size, the objective and the rate can
//! change: its sockets and its clients' rights are fixed when its process starts.

mod dialing;
pub(super) mod orchestrator;
mod replug;
mod size;
pub(super) mod space_task;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use self::orchestrator::{Member, Orchestrator};
use self::space_task::{SpaceError, SpaceTask};
use super::process::launch::Launch;
use super::runtime_dir::Folder;
use super::systemd::fd_store::FdStore;
use crate::config::{Config, Space};
use crate::runtime_paths::SPACE_FOLDER;

/// A running space.
#[derive(Clone, Debug)]
struct Served {
    config: Space,
    /// Slots that it can be given while it serves.
    most: u32,
    address: mpsc::Sender<space_task::Message>,
}

/// All spaces.
#[derive(Debug, Default)]
pub(super) struct MemoryPlane {
    folder: Option<Folder>,
    /// In the order of the configuration.
    spaces: Vec<Served>,
    orchestrator: Option<mpsc::Sender<orchestrator::Message>>,
    /// Keeps spaces' memory beyond the end of this process.
    pub(super) store: FdStore,
}

/// What a new configuration changes, with all that it needs.
#[derive(Debug)]
pub(super) struct Change {
    started: Vec<SpaceTask>,
    spaces: Vec<Space>,
    budget: Option<u32>,
}

impl MemoryPlane {
    /// Returns a memory plane without spaces; `store` has what the service manager kept.
    pub(super) fn new(store: FdStore) -> Self {
        Self {
            store,
            ..Self::default()
        }
    }

    /// Returns the senders of the spaces' tasks and of the orchestrator.
    pub(super) fn addresses(
        &self,
    ) -> (
        Vec<mpsc::Sender<space_task::Message>>,
        Option<mpsc::Sender<orchestrator::Message>>,
    ) {
        let spaces = self.spaces.iter().map(|space| space.address.clone());
        (spaces.collect(), self.orchestrator.clone())
    }

    /// Checks what a configuration changes, and starts the spaces that are new in it.
    ///
    /// # Errors
    /// The VM whose space cannot be as the configuration says, and why.
    pub(super) fn prepare(
        &mut self,
        config: &Config,
        launch: &Launch,
    ) -> Result<Change, (String, SpaceError)> {
        let mut started = Vec::new();
        for space in &config.spaces {
            let vm = space.vm.clone();
            let refused = |error| (vm, error);
            match self.served(&space.vm) {
                Some(served) => served.allows(space).map_err(refused)?,
                None => started.push(self.start(config, space, launch).map_err(refused)?),
            }
        }
        Ok(Change {
            started,
            spaces: config.spaces.clone(),
            budget: config.space_budget,
        })
    }

    fn served(&self, vm: &str) -> Option<&Served> {
        self.spaces.iter().find(|served| served.config.vm == vm)
    }

    fn start(
        &mut self,
        config: &Config,
        space: &Space,
        launch: &Launch,
    ) -> Result<SpaceTask, SpaceError> {
        let runtime_dir = &config.runtime_dir;
        if self.folder.is_none() {
            let folder = runtime_dir.join(SPACE_FOLDER);
            self.folder = Some(Folder::create(&folder)?);
        }
        SpaceTask::start(
            runtime_dir,
            space.clone(),
            config.space_budget,
            self.store.take(&space.vm),
            launch.clone(),
        )
    }

    /// Brings a change into force: nothing here fails.
    ///
    /// Spaces that shrink do so before others grow. A space that gets a number of slots in the configuration, or is
    /// new, has its slots at once.
    pub(super) async fn apply(&mut self, change: Change, tasks: &mut JoinSet<()>) {
        let keep = |served: &Served| change.spaces.iter().any(|new| new.vm == served.config.vm);
        let spaces = std::mem::take(&mut self.spaces);
        let gone: Vec<_>;
        (self.spaces, gone) = spaces.into_iter().partition(keep);
        for served in gone {
            tracing::info!(vm = %served.config.vm, "removed the space");
            drop(served.address.send(space_task::Message::Stop).await);
            // The task drops its inbox when it has ended.
            served.address.closed().await;
            self.store.remove(&served.config.vm);
        }
        self.warn_without_service_manager(&change.started);
        for task in change.started {
            // What the VM publishes from here on outlives this process.
            if let Some(memory) = task.new_memory() {
                self.store.insert(&task.config().vm, memory);
            }
            self.spaces.push(Served {
                config: task.config().clone(),
                most: task.most(),
                address: task.address(),
            });
            tasks.spawn(task.run());
        }
        let place = |served: &Served| {
            let mut spaces = change.spaces.iter();
            spaces.position(|space| space.vm == served.config.vm)
        };
        self.spaces.sort_by_key(place);
        // Spaces that shrink come first.
        let mut growing = Vec::new();
        for (served, new) in self.spaces.iter_mut().zip(change.spaces) {
            let grows = new.slots > served.config.slots && served.config.slots.is_some();
            if new != served.config {
                served.config = new;
                match grows {
                    true => growing.push(served.clone()),
                    false => served.configure().await,
                }
            }
        }
        self.share_budget(change.budget, tasks).await;
        for served in growing {
            served.configure().await;
        }
    }

    /// Warns once that without a service manager the spaces' memory ends with this process.
    fn warn_without_service_manager(&self, started: &[SpaceTask]) {
        if self.spaces.is_empty() && !started.is_empty() && !FdStore::is_available() {
            tracing::warn!(
                "the files that VMs publish in their spaces are lost when this process ends, because it does not \
                    run under systemd, which would store their memory"
            );
        }
    }

    /// Sends the orchestrator the slots that it may assign, and the spaces.
    async fn share_budget(&mut self, budget: Option<u32>, tasks: &mut JoinSet<()>) {
        let Some(budget) = budget else {
            return;
        };
        let fixed = self.spaces.iter().filter_map(|served| served.config.slots);
        let left = budget.saturating_sub(fixed.sum::<u32>());
        let address = self.orchestrator.get_or_insert_with(|| {
            let (orchestrator, address) = Orchestrator::new(left);
            tasks.spawn(orchestrator.run());
            address
        });
        let open = |served: &&Served| served.config.slots.is_none();
        let members = self.spaces.iter().filter(open).map(|served| Member {
            vm: served.config.vm.clone(),
            objective: served.config.objective,
            address: served.address.clone(),
        });
        let (done, shared) = oneshot::channel();
        let message = orchestrator::Message::Share(left, members.collect(), done);
        // It ends with us.
        drop(address.send(message).await);
        drop(shared.await);
    }

    /// Stops everything.
    pub(super) async fn stop(&self) {
        if let Some(orchestrator) = &self.orchestrator {
            drop(orchestrator.send(orchestrator::Message::Stop).await);
        }
        for served in &self.spaces {
            drop(served.address.send(space_task::Message::Stop).await);
        }
    }
}

impl Served {
    /// Sends the space's task its size and rate of the configuration.
    async fn configure(&self) {
        let message = space_task::Message::Configure(Box::new(self.config.clone()));
        drop(self.address.send(message).await);
    }

    /// Checks whether the running space can change to `new`.
    fn allows(&self, new: &Space) -> Result<(), SpaceError> {
        let same = Space {
            slots: self.config.slots,
            objective: self.config.objective,
            rate: self.config.rate,
            ..new.clone()
        };
        if same != self.config {
            return Err(SpaceError::Fixed);
        }
        match new.slots {
            Some(slots) if slots > self.most => Err(SpaceError::TooLarge { most: self.most }),
            _ => Ok(()),
        }
    }
}
