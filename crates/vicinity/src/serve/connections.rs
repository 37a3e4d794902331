//! Connections with front-ends and members: those that the supervisor accepts, and those that it makes.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Notify, mpsc, oneshot};
use vhost::raw::ForeignFd;

use super::peer::Peer;

/// Pause between two accepted connections of one socket: bounds the work that a front-end can cause.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// First pause after a connection failed; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// A connection. The next one of the same socket comes when `next` is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) stream: ForeignFd,
    pub(super) peer: Peer,
    pub(super) next: oneshot::Sender<()>,
}

/// Accepts connections on a socket until `to` has no receiver any more, and sends each to it as a message that `wrap` makes.
pub(super) async fn accept<M>(
    socket: UnixListener,
    to: mpsc::Sender<M>,
    wrap: impl Fn(Connection) -> M,
) {
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                if !deliver(stream, &to, &wrap).await {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "cannot accept a connection"),
        }
        tokio::time::sleep(ACCEPT_PAUSE).await;
    }
}

/// Connects to the front-end that listens on `path`, again and again. `wake` notifies of a change of the socket. `wrap` makes messages of connections, `failed` of the reasons why there is none.
pub(super) async fn dial<M>(
    path: PathBuf,
    wake: Arc<Notify>,
    to: mpsc::Sender<M>,
    wrap: impl Fn(Connection) -> M,
    failed: impl Fn(String) -> M,
) {
    let mut pause = FIRST_PAUSE;
    let mut trouble = None;
    loop {
        match UnixStream::connect(&path).await {
            Ok(stream) => {
                (pause, trouble) = (FIRST_PAUSE, None);
                if !deliver(stream, &to, &wrap).await {
                    return;
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(error) => {
                if trouble.replace(error.kind()) != Some(error.kind()) {
                    let reason = unreachable(&path, &error);
                    if to.send(failed(reason)).await.is_err() {
                        return;
                    }
                }
                pause = tokio::select! {
                    () = wake.notified() => FIRST_PAUSE,
                    () = tokio::time::sleep(pause) => (pause * 2).min(LONGEST_PAUSE),
                };
            }
        }
    }
}

fn unreachable(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "the socket does not exist yet: its QEMU has not started".to_owned()
        }
        std::io::ErrorKind::ConnectionRefused => {
            "no QEMU listens on the socket, which may remain from a QEMU that died".to_owned()
        }
        _ => format!("cannot connect to {}: {error}", path.display()),
    }
}

/// Sends a connection to `to`, and waits until its receiver wants another one. Returns false if there is no
/// receiver any more.
async fn deliver<M>(
    stream: UnixStream,
    to: &mpsc::Sender<M>,
    wrap: &impl Fn(Connection) -> M,
) -> bool {
    let (next, welcome) = oneshot::channel();
    let peer = Peer::of(&stream);
    let (stream, peer) = match (stream.into_std(), peer) {
        (Ok(stream), Ok(peer)) => (ForeignFd::from(OwnedFd::from(stream)), peer),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "cannot read the credentials of a connection");
            return true;
        }
    };
    let connection = Connection { stream, peer, next };
    if to.send(wrap(connection)).await.is_err() {
        return false;
    }
    // The receiver drops `next` when it wants another one.
    drop(welcome.await);
    true
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_appears_is_dialed_without_waiting_for_the_next_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        let wake = Arc::new(Notify::new());
        let (to, mut inbox) = mpsc::channel(1);
        tokio::spawn(dial(path.clone(), wake.clone(), to, Ok, Err));
        let first = inbox.recv().await.unwrap();
        assert!(first.is_err());
        // The test clock advances only while all tasks sleep; attempts are 10 s apart by now.
        tokio::time::sleep(Duration::from_secs(55)).await;
        let _front_end = UnixListener::bind(&path).unwrap();
        let bound = Instant::now();
        wake.notify_one();
        let second = inbox.recv().await.unwrap();
        assert!(second.is_ok());
        assert_eq!(bound.elapsed(), Duration::ZERO);
    }
}
