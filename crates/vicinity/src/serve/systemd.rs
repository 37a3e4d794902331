//! What a service manager is told, and given: readiness, reloads, the watchdog, and the control
//! socket. Without one, nothing of this does anything.
//!
//! Protocols: systemd's `sd_notify(3)` and `sd_listen_fds(3)`.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;

use super::api::Daemon;
use super::supervisor::Wish;

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

/// The control socket, if a service manager listens on it for us. Once, before there are threads: it
/// takes the words of the environment away, so that no child believes them.
pub(super) fn handed(path: &Path) -> Result<Option<UnixListener>, HandedError> {
    let mut handed = ListenFd::from_env();
    let wrong = |what: String| {
        let path = path.to_owned();
        HandedError::Kind { what, path }
    };
    match handed.len() {
        0 => return Ok(None),
        1 => {}
        several => return Err(wrong(format!("{several} descriptors"))),
    }
    let socket = handed
        .take_unix_listener(0)
        .map_err(|error| wrong(format!("something else ({error})")))?;
    if let Some(socket) = &socket {
        let there = socket.local_addr()?;
        let there = there.as_pathname().unwrap_or(Path::new("nowhere"));
        if there != path {
            let (there, path) = (there.to_owned(), path.to_owned());
            return Err(HandedError::Place { there, path });
        }
        socket.set_nonblocking(true)?;
    }
    Ok(socket)
}

/// The daemon serves.
pub(super) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The daemon ends in order.
pub(super) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// The configuration is loaded again, for as long as this lives.
#[derive(Debug)]
pub(super) struct Reloading(());

impl Reloading {
    pub(super) fn begin() -> Self {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::warn!(%error, "there is no clock"),
        }
        Self(())
    }
}

impl Drop for Reloading {
    fn drop(&mut self) {
        ready();
    }
}

/// Tell the watchdog, for ever, that the daemon is well: that the supervisor answers, and every
/// network. A daemon of which one hangs is not, however well its other tasks run.
pub(super) async fn watch(daemon: Daemon) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    let mut pulse = tokio::time::interval(limit / 2);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        let (question, answer) = oneshot::channel();
        if daemon.wishes.send((Wish::Tell, question)).await.is_err() || answer.await.is_err() {
            // The daemon ends.
            return std::future::pending().await;
        }
        daemon.ask().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
