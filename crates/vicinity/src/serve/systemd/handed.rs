//! What a service manager hands over at the start: the control socket, which it listens on for us, and
//! what it kept of the daemon before ([`FdStore`]).
//!
//! Protocol: `sd_listen_fds_with_names(3)`. systemd passes sockets of socket units first, by the name of the
//! unit, then what it stored, the latest first (`service_collect_fds` in its `service.c`). Only names count
//! here, not the order.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::fd_store::FdStore;

/// What it is called that has no name: an old service manager, or one of the user's own, gives none.
const UNKNOWN: &str = "unknown";

/// Why a socket that was handed over is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandedError {
    /// Of another kind, or several.
    #[error(
        "the service manager handed over {what}; one socket is expected, with \
         `ListenStream={}`", path.display()
    )]
    Kind {
        /// What it was.
        what: String,
        /// The control socket.
        path: PathBuf,
    },
    /// It is at another place than clients look at.
    #[error(
        "the service manager listens on {}, but the control socket is {}; make `ListenStream=` and \
         the runtime folder agree", there.display(), path.display()
    )]
    Place {
        /// Where it is.
        there: PathBuf,
        /// The control socket.
        path: PathBuf,
    },
    /// Trouble with the socket.
    #[error("cannot use the socket that the service manager handed over: {0}")]
    Socket(#[from] io::Error),
}

/// The control socket, if a service manager listens on it for us, and what it kept. Once, before there are
/// threads and before anything is opened: it takes the words of the environment away, so that no child
/// believes them.
///
/// # Errors
/// The control socket is not one, or at another place. What was kept is never an error.
pub(in crate::serve) fn take(path: &Path) -> Result<(Option<UnixListener>, FdStore), HandedError> {
    let (kept, mut sockets): (Vec<_>, Vec<_>) = descriptors()
        .into_iter()
        .partition(|(name, _)| FdStore::is_ours(name));
    let wrong = |what: String| {
        let path = path.to_owned();
        HandedError::Kind { what, path }
    };
    let control = match (sockets.pop(), sockets.len()) {
        (None, _) => None,
        (Some((_, socket)), 0) if is_listener(&socket) => Some(UnixListener::from(socket)),
        (Some((name, _)), 0) => return Err(wrong(format!("something else ({name})"))),
        (Some(_), others) => return Err(wrong(format!("{} sockets", others + 1))),
    };
    if let Some(control) = &control {
        check_place(control, path)?;
        control.set_nonblocking(true)?;
    }
    Ok((control, FdStore::new(kept)))
}

/// All that was handed over, by name.
fn descriptors() -> Vec<(String, OwnedFd)> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':').filter(|name| !name.is_empty());
    let mut handed = ListenFd::from_env();
    let mut taken = Vec::new();
    for index in 0..handed.len() {
        let name = names.next().unwrap_or(UNKNOWN);
        let fd = handed.take_raw_fd(index).ok().flatten();
        match fd.map(sandbox::take_inherited) {
            Some(Ok(fd)) => taken.push((name.to_owned(), fd)),
            Some(Err(error)) => tracing::warn!(%error, "the service manager promised {name}"),
            None => {}
        }
    }
    taken
}

fn is_listener(socket: &OwnedFd) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(socket) == Ok(true)
}

fn check_place(socket: &UnixListener, path: &Path) -> Result<(), HandedError> {
    let there = socket.local_addr()?;
    let there = there.as_pathname().unwrap_or(Path::new("nowhere"));
    if there == path {
        return Ok(());
    }
    let (there, path) = (there.to_owned(), path.to_owned());
    Err(HandedError::Place { there, path })
}
