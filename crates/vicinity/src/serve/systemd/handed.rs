//! The descriptors that a service manager passes to the daemon at its start: the control socket, on which the
//! service manager listens for the daemon, and those that it kept for the previous daemon ([`FdStore`]).
//!
//! Protocol: `sd_listen_fds_with_names(3)`. systemd passes sockets of socket units first, by the name of the
//! unit, then the stored descriptors, the latest first (`service_collect_fds` in its `service.c`). This
//! module uses only the names, not the order.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use rustix::net::{AddressFamily, SocketType, sockopt};

use super::fd_store::FdStore;

/// The name of a descriptor without a name: an old or a self-written service manager may pass no names.
const UNKNOWN: &str = "unknown";

/// Why the daemon cannot use a socket that the service manager passed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandedError {
    /// The socket has another kind, or there are several.
    #[error(
        "the service manager passed {what}, but the daemon needs one listening socket; set `ListenStream={}` in \
            the socket unit", path.display()
    )]
    Kind {
        /// What the service manager passed.
        what: String,
        /// The control socket.
        path: PathBuf,
    },
    /// The socket's path is not the one that clients connect to.
    #[error(
        "the service manager listens on {}, but the control socket is {}; set `ListenStream=` and `runtime-dir` \
            to the same folder", there.display(), path.display()
    )]
    Place {
        /// The path of the socket.
        there: PathBuf,
        /// The control socket.
        path: PathBuf,
    },
    /// An operation on the socket failed.
    #[error("cannot use the socket that the service manager passed: {0}")]
    Socket(#[from] io::Error),
}

/// Returns the control socket, if a service manager listens on it for the daemon, and the descriptors that it
/// kept. Call this function once, before this process starts threads and before it opens anything. The
/// function removes the variables from the environment, so that no child process uses them.
///
/// # Errors The passed socket is not a listening Unix stream socket, or has another path. The kept
/// descriptors never cause an error.
pub(in crate::serve) fn take(path: &Path) -> Result<(Option<UnixListener>, FdStore), HandedError> {
    let (kept, mut sockets): (Vec<_>, Vec<_>) = descriptors()
        .into_iter()
        .partition(|(name, _)| FdStore::is_stored_name(name));
    let wrong = |what: String| {
        let path = path.to_owned();
        HandedError::Kind { what, path }
    };
    let control = match (sockets.pop(), sockets.len()) {
        (None, _) => None,
        (Some((_, socket)), 0) if is_listener(&socket) => Some(UnixListener::from(socket)),
        (Some((name, _)), 0) => {
            return Err(wrong(format!(
                "a descriptor that is not a listening Unix socket \
        ({name})"
            )));
        }
        (Some(_), others) => return Err(wrong(format!("{} sockets", others + 1))),
    };
    if let Some(control) = &control {
        check_place(control, path)?;
        control.set_nonblocking(true)?;
    }
    Ok((control, FdStore::new(kept)))
}

/// Returns all passed descriptors, by name.
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
            Some(Err(error)) => {
                tracing::warn!(%error, "cannot use descriptor {name} of the service manager");
            }
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
