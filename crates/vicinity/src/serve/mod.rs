//! `vicinity serve`: the supervisor.
//!
//! It takes from the system all that a configuration asks for ([`parts`]), starts one data
//! plane per network, a process of its own ([`mod@launch`]), with one [`network`] task beside it
//! that speaks with it ([`plane`]) and starts it again should it end ([`life`]), answers the
//! control API ([`api`]), and gives everything back at the end.

mod answer;
mod api;
mod arrivals;
mod backoff;
mod folder;
mod home;
mod launch;
mod life;
mod messages;
mod network;
mod parts;
mod plane;
mod port;
mod quarantine;
pub(crate) mod tap;

use std::future::Future;
use std::io;

use rustix::process::{Resource, Rlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::config::Config;
use home::{Home, HomeError};
use messages::{Doors, Messages};
use network::{Message, Network};
use parts::{Parts, PartsError};

/// Name of the control socket in the runtime folder.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";

/// Permissions of the control socket: the owner alone.
const CONTROL_MODE: u32 = 0o600;

/// Descriptors wanted: a port has a socket here, and its own socket, memory regions and ring
/// events in the data plane.
const DESCRIPTORS: u64 = 65_536;

/// Why the daemon could not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServeError {
    /// The runtime folder or the control socket.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A network's folder, socket or uplink.
    #[error("network {network}: {source}")]
    Parts {
        /// The network.
        network: String,
        /// What is missing.
        source: PartsError,
    },
    /// The system is short of something.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

/// Serve `config` until SIGINT or SIGTERM. Data planes log as `log` says: options of the command
/// line.
pub(crate) fn run(config: Config, log: Vec<String>) -> Result<(), ServeError> {
    raise_descriptor_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let stop = async move {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        serve(config, launch::processes(log), stop).await
    })
}

/// Serve `config` with data planes started by `launch` until `stop` completes.
async fn serve(
    config: Config,
    launch: launch::Launch,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let _home = Home::claim(&config.runtime_dir)?;
    let (control, _file) = home::listen(&config.runtime_dir.join(CONTROL_SOCKET), CONTROL_MODE)?;
    let mut parts = Vec::new();
    for network in config.networks {
        let name = network.name.clone();
        parts.push(Parts::take(network).map_err(|source| ServeError::Parts {
            network: name,
            source,
        })?);
    }
    let doors = match config.members.is_empty() {
        true => None,
        false => Some(Doors::take(&config.runtime_dir, config.members)?),
    };
    let mut networks = JoinSet::new();
    let mut addresses = Vec::new();
    let mut plane = None;
    if let Some(doors) = doors {
        let messages = Messages::start(doors, launch.clone())?;
        plane = Some(messages.address());
        networks.spawn(messages.run());
    }
    for parts in parts {
        let network = Network::start(parts, launch.clone())?;
        addresses.push(network.address());
        networks.spawn(network.run());
    }
    let mut api = JoinSet::new();
    api.spawn(api::serve(control, addresses.clone(), plane.clone()));
    tracing::info!(runtime_dir = %config.runtime_dir.display(), "serving");
    stop.await;
    tracing::info!("stopping");
    for address in addresses {
        // A network that ended by itself has nothing left to stop.
        drop(address.send(Message::Stop).await);
    }
    if let Some(plane) = plane {
        drop(plane.send(messages::Message::Stop).await);
    }
    networks.join_all().await;
    api.shutdown().await;
    Ok(())
}

fn raise_descriptor_limit() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    // No limit at all stays as it is.
    let wanted = |limit: Option<u64>| limit.map(|limit| limit.max(DESCRIPTORS));
    let more = Rlimit {
        current: wanted(now.current),
        maximum: wanted(now.maximum),
    };
    let most = Rlimit {
        current: now.maximum,
        maximum: now.maximum,
    };
    let raised = rustix::process::setrlimit(Resource::Nofile, more)
        .or_else(|_| rustix::process::setrlimit(Resource::Nofile, most));
    if let Err(error) = raised {
        tracing::warn!(%error, "cannot raise the limit on open files");
    }
}

#[cfg(test)]
mod tests;
