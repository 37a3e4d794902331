//! Connections that are made for a process that cannot connect.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use memory_plane::push::Target;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Who does not answer within so long is not there.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection on its way, or none.
#[derive(Debug, Default)]
pub(super) struct Dialing(JoinSet<Result<OwnedFd, String>>);

impl Dialing {
    /// Connect, unless that is being done already.
    pub(super) fn start(&mut self, store: &Target) {
        if self.0.is_empty() {
            let (host, port) = (store.host.clone(), store.port);
            self.0.spawn(async move {
                let stream = timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await;
                let stream = stream.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let stream = stream.and_then(TcpStream::into_std);
                stream.map(OwnedFd::from).map_err(|error| error.to_string())
            });
        }
    }

    /// The connection, or why there is none; waits while none is on its way. Cancel safe.
    pub(super) async fn done(&mut self) -> Result<OwnedFd, String> {
        match self.0.join_next().await {
            Some(done) => done.unwrap_or_else(|error| Err(error.to_string())),
            None => std::future::pending().await,
        }
    }

    /// Nobody wants it any more.
    pub(super) fn give_up(&mut self) {
        self.0 = JoinSet::new();
    }
}
