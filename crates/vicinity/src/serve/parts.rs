//! Everything a network needs from the system, taken before anything starts: a configuration
//! that cannot be served fails as a whole.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use tokio::net::UnixListener;

use super::change::{self, Opened};
use super::folder::Watch;
use super::home::{self, Folder, HomeError, SocketFile};
use super::tap::{self, TapError};
use crate::config::{self, Mode};

/// Permissions of a port's socket: the owner, and the owner's group.
const SOCKET_MODE: u32 = 0o660;

/// Why a network cannot be served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartsError {
    /// A folder or socket.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The uplink.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// The watch.
    #[error(
        "cannot watch {folder}: {source}; if the limit is reached, raise \
         fs.inotify.max_user_instances with sysctl"
    )]
    Watch {
        /// The folder.
        folder: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A network's parts.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) config: config::Network,
    pub(super) uplink: Option<(String, OwnedFd)>,
    /// Each listed port, with its socket in server mode.
    pub(super) ports: Vec<Opened>,
    pub(super) watch: Watch,
    /// Last, so that it is empty when it is dropped.
    pub(super) folder: Folder,
}

impl Parts {
    pub(super) fn take(config: config::Network) -> Result<Self, PartsError> {
        let folder = Folder::make(&config.folder)?;
        let uplink = match &config.uplink {
            Some(name) => Some((name.clone(), tap::open(name)?)),
            None => None,
        };
        let ports = config.ports.iter().map(change::open);
        let ports = ports.collect::<Result<_, HomeError>>()?;
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

/// Listen on a port's socket.
pub(super) fn listen(socket: &Path) -> Result<(UnixListener, SocketFile), HomeError> {
    home::listen(socket, SOCKET_MODE)
}

fn watch(config: &config::Network) -> Result<Watch, PartsError> {
    let failed = |source| PartsError::Watch {
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

/// A folder that need not be there: the dialing task tries from time to time all the same.
pub(super) fn watch_other(watch: &mut Watch, folder: &Path) {
    if let Err(error) = watch.add(folder) {
        tracing::warn!(folder = %folder.display(), %error, "cannot watch this folder for sockets");
    }
}
