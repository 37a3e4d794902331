//! `vicinity serve`: the supervisor.
//!
//! The supervisor opens the sockets, taps and memory that the configuration requires, and starts the processes
//! ([`process`]). One task for each process exchanges orders and events with it, and restarts it if it ends. The
//! supervisor answers the control API ([`api`]), and removes at its end all that it created. [`supervisor`] owns the
//! tasks, and carries out changes of the configuration ([`request`]), one at a time.
//!
//! ```text
//!   api ───────── requests ──────▶ supervisor          systemd: notifications, watchdog, descriptors
//!    │ questions                       │ starts, changes, stops
//!    ▼                                 ▼
//! ┌──────────────┬───────────────┬───────────────┬─────────────────────────────┐
//! │ network      │ message_plane │ direct_groups │ memory_plane                │  tasks: each receives its
//! │ a task for   │ one task      │ a task for    │ a task for each space, and  │  messages from a channel
//! │ each network │               │ each group    │ the orchestrator's          │
//! └──────┬───────┴───────┬───────┴───────┬───────┴──────────────┬──────────────┘
//!        └───────────────┴── process ────┴──────────────────────┘   a process and its control socket
//!            interface, connections, peer, runtime_dir              resources of the system
//! ```

mod api;
mod connections;
mod direct_groups;
pub(crate) mod interface;
mod memory_plane;
mod message_plane;
mod network;
mod peer;
mod process;
mod request;
mod runtime_dir;
mod supervisor;
mod systemd;
pub(crate) mod vsock;
pub(crate) mod web;

use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener;

use rustix::process::{Resource, Rlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use self::systemd::fd_store::FdStore;
use self::systemd::handed::HandedError;
use crate::config::{Config, Source};
use crate::runtime_paths::{CONTROL_SOCKET, VIEW_SOCKET};
pub(crate) use api::OPENAPI;
use request::ChangeError;
use runtime_dir::{RuntimeDir, RuntimeDirError};
use supervisor::Supervisor;

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
    RuntimeDir(#[from] RuntimeDirError),
    /// A network.
    #[error(transparent)]
    Network(#[from] ChangeError),
    /// The page's address.
    #[error(transparent)]
    Web(#[from] web::ListenError),
    /// The control socket of a service manager.
    #[error(transparent)]
    Handed(#[from] HandedError),
    /// The system is short of something.
    #[error("the daemon cannot start: {0}")]
    System(#[from] io::Error),
}

/// Serves `config` until SIGINT or SIGTERM. Data planes log as `log` says: options of the command
/// line.
pub(crate) fn run(source: Source, config: Config, log: Vec<String>) -> Result<(), ServeError> {
    raise_descriptor_limit();
    // The thread that closes descriptors: closing the socket of a refused front-end, or of a front-end whose data
    // plane has ended, may block.
    vhost::reclaim::start(|| {})?;
    let (control, kept) = systemd::handed::take(&config.runtime_dir.join(CONTROL_SOCKET))?;
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
        serve(
            source,
            config,
            (control, kept),
            process::launch::processes(log),
            stop,
        )
        .await
    })
}

/// Serves `config` with data planes started by `launch` until `stop` completes. First come the
/// control socket, if a service manager listens on it already, and what it kept.
async fn serve(
    source: Source,
    config: Config,
    (control, kept): (Option<UnixListener>, FdStore),
    launch: process::launch::Launch,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (runtime_dir, page) = (config.runtime_dir.clone(), config.web.clone());
    let _home = RuntimeDir::claim(&runtime_dir)?;
    let path = runtime_dir.join(CONTROL_SOCKET);
    let (control, _file) = match control {
        Some(control) => (tokio::net::UnixListener::from_std(control)?, None),
        None => {
            let (control, file) = runtime_dir::listen(&path, CONTROL_MODE)?;
            (control, Some(file))
        }
    };
    let view_path = runtime_dir.join(VIEW_SOCKET);
    let (view, _view_file) = runtime_dir::listen_for_group(&view_path, page.group)?;
    let address = page.listen.as_ref().map(web::Address::open).transpose()?;
    let (mut supervisor, requests) = Supervisor::new(source, config, launch, kept);
    supervisor.start().await?;
    let addresses = supervisor.addresses();
    let daemon = api::daemon::Daemon {
        addresses,
        requests,
    };
    let mut api = JoinSet::new();
    let hub = web::hub::Hub::of_daemon(daemon.clone());
    api.spawn(api::serve(control, daemon.clone(), hub.clone()));
    let views = api::read_only(daemon.clone(), hub);
    api.spawn(web::serve(
        view,
        web::guarded(views.clone(), web::Gate::default()),
    ));
    if let Some(address) = address {
        let views = web::guarded(views, address.gate.clone());
        api.spawn(address.serve(views));
    }
    let answers = async move || daemon.supervisor_answers().await;
    api.spawn(systemd::watchdog::watch(answers));
    tracing::info!(runtime_dir = %runtime_dir.display(), "serving");
    systemd::notify::ready();
    tokio::select! {
        () = stop => {}
        () = supervisor.run() => {}
    }
    tracing::info!("stopping");
    systemd::notify::stopping();
    supervisor.stop().await;
    api.shutdown().await;
    Ok(())
}

/// The heads of all metrics: names, kinds, and help texts.
pub(crate) fn metrics() -> String {
    api::metric_heads()
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
        tracing::warn!(%error, "cannot raise the limit on open files; raise it with LimitNOFILE= or ulimit -n if \
        ports cannot be added");
    }
}

#[cfg(test)]
mod tests;
