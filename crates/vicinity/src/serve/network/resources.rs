//! Everything a network needs from the system, taken before anything starts: a configuration
//! that cannot be served fails as a whole.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::net::UnixListener;

use super::folder::Watch;
use crate::config::{self, Mode};
use crate::serve::interface::{self, UplinkError};
use crate::serve::runtime_dir::{self, Folder, RuntimeDirError, SOCKET_MODE, SocketFile};

/// Why a network cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NetworkResourcesError {
    /// A folder or socket.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// The uplink.
    #[error(transparent)]
    Uplink(#[from] UplinkError),
    /// The watch.
    #[error(
        "cannot watch the folder {folder}: {source}; if the limit of inotify is reached, raise \
            fs.inotify.max_user_instances with sysctl"
    )]
    Watch {
        /// The folder.
        folder: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A listed port, with its socket in server mode.
pub(in crate::serve) type OpenedPort = (config::Port, Option<(UnixListener, SocketFile)>);

/// What a network needs from the system.
#[derive(Debug)]
pub(in crate::serve) struct NetworkResources {
    pub(in crate::serve) config: config::Network,
    /// Its queues.
    pub(in crate::serve) uplink: Option<Vec<OwnedFd>>,
    pub(in crate::serve) ports: Vec<OpenedPort>,
    pub(in crate::serve) watch: Watch,
    /// Last, so that it is empty when it is dropped.
    pub(in crate::serve) folder: Folder,
}

impl NetworkResources {
    pub(in crate::serve) fn take(config: config::Network) -> Result<Self, NetworkResourcesError> {
        let folder = Folder::create(&config.folder)?;
        let uplink = interface::open(&config)?;
        let ports = config.ports.iter().map(open);
        let ports = ports.collect::<Result<_, RuntimeDirError>>()?;
        let watch = watch(&config)?;
        Ok(Self {
            config,
            uplink,
            ports,
            watch,
            folder,
        })
    }
}

/// Listens on a port's socket, if the port is in server mode.
pub(in crate::serve) fn open(port: &config::Port) -> Result<OpenedPort, RuntimeDirError> {
    let listening = match port.mode {
        Mode::Server => Some(runtime_dir::listen(&port.socket, SOCKET_MODE)?),
        Mode::Client => None,
    };
    Ok((port.clone(), listening))
}

fn watch(config: &config::Network) -> Result<Watch, NetworkResourcesError> {
    let failed = |source| NetworkResourcesError::Watch {
        folder: config.folder.display().to_string(),
        source,
    };
    let mut watch = Watch::new().map_err(failed)?;
    watch.add(&config.folder).map_err(failed)?;
    let clients = config.ports.iter().filter(|port| port.mode == Mode::Client);
    for folder in clients.filter_map(|port| port.socket.parent()) {
        watch_other(&mut watch, folder);
    }
    Ok(watch)
}

/// Watches a folder that may be missing: the dialing task tries from time to time in any case.
pub(in crate::serve) fn watch_other(watch: &mut Watch, folder: &Path) {
    if let Err(error) = watch.add(folder) {
        tracing::warn!(folder = %folder.display(), %error, "cannot watch this folder for sockets");
    }
}
