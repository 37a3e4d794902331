//! Push: sends a space's files to a store, such as an S3 server.
//!
//! The space's file system is an outbox. Each published file is sent, one at a time, in the order of publication. When the
//! store acknowledges a file, the file is removed from the space and its slots become free. A file that the store did not
//! acknowledge is sent again without end, after a delay that doubles up to a maximum (at-least-once delivery): no
//! acknowledged write of the guest is lost, and the store may receive a file twice. A file that changes or is renamed during
//! its push remains, and is sent again. Files whose names begin with a dot or end in `.tmp` or `.part` are not sent, because
//! programs write such files in order to rename them.
//!
//! If the store refuses one file, the other files are sent meanwhile. If the connection fails, all files wait.
//!
//! The process is not allowed to connect by itself. It requests a connection from its supervisor ([`Dial`]).

mod error;
mod names;
mod outbox;
mod put;
mod raw;
mod sign;
mod target;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::client::conn::http1::SendRequest;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use space::store::PublishedFile;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

pub(crate) use outbox::Outbox;
pub use sign::{Keys, KeysError};
pub use target::{InvalidTarget, Protocol, Target};

use error::PushError;
use names::url_path;

use crate::body::{Body, ObjectReader};
use crate::space_state::{SpaceState, now};
use crate::throttle::{Progress, Throttled};

/// Requests a connection to the store. The channel delivers the connection, or the reason why there is none.
pub type Dial =
    Box<dyn Fn() -> oneshot::Receiver<Result<std::net::TcpStream, String>> + Send + Sync>;

/// How a space authenticates to the store.
#[derive(Debug)]
pub enum Credential {
    /// The value of the `Authorization` header.
    Token(HeaderValue),
    /// Keys that sign each request.
    Keys(Keys),
}

/// Pushes the files of one space to a store.
pub struct Pusher {
    /// The space.
    state: Arc<SpaceState>,
    /// The store.
    target: Target,
    /// How the space authenticates to the store.
    credential: Option<Credential>,
    /// The TLS configuration for https.
    tls: Option<TlsConnector>,
    /// How to get a connection.
    dial: Dial,
}

/// A connection to the store.
enum Connection {
    Http(SendRequest<Body>, Arc<Progress>),
    Raw(BufReader<Throttled>, Arc<Progress>),
}

impl Pusher {
    /// Creates the pusher of a space. From now on, files are removed after they were sent.
    #[must_use]
    pub fn new(
        state: &Arc<SpaceState>,
        target: Target,
        credential: Option<Credential>,
        tls: Option<TlsConnector>,
        dial: Dial,
    ) -> Self {
        state.outbox.enabled.store(true, Ordering::Relaxed);
        Self {
            state: Arc::clone(state),
            target,
            credential,
            tls,
            dial,
        }
    }

    /// Pushes files without end.
    pub async fn run(self) -> Infallible {
        let outbox = &self.state.outbox;
        let (mut connection, mut failures) = (None, 0);
        loop {
            let now = Instant::now();
            let next = outbox.next(&self.state.store(), now);
            let Some(file) = next else {
                // Close the connection, because a store would not keep an idle connection open for long.
                connection = None;
                self.wait_for_work(now).await;
                continue;
            };
            outbox.started(file.inode, self.state.sent());
            match self.push(&file, &mut connection).await {
                Ok(()) => {
                    failures = 0;
                    outbox.succeeded(file.inode);
                    self.state.store().remove_pushed(&file);
                }
                Err(why) => {
                    outbox.failed(&self.state.store(), &file, &why, Instant::now());
                    if why.is_file_error() {
                        failures = 0;
                        continue;
                    }
                    connection = None;
                    failures += 1;
                    drop(file);
                    sleep(outbox::retry_delay(failures)).await;
                }
            }
        }
    }

    /// Waits until there may be a file to send.
    async fn wait_for_work(&self, now: Instant) {
        let outbox = &self.state.outbox;
        let changed = outbox.changed.notified();
        match outbox.next_retry(now) {
            None => changed.await,
            Some(next_retry) => tokio::select! {
                () = changed => {}
                () = sleep_until(next_retry) => {}
            },
        }
    }

    /// Sends a file and waits for the store's acknowledgement.
    async fn push(
        &self,
        file: &PublishedFile,
        connection: &mut Option<Connection>,
    ) -> Result<(), PushError> {
        let connection = match connection {
            Some(connection) => connection,
            None => connection.insert(self.connect().await?),
        };
        let content = file.object.content.clone();
        let length = content.size();
        let reader = ObjectReader::new(&self.state, content, 0, length);
        let path = url_path(&file.path);
        match connection {
            Connection::Http(store, progress) => {
                let path = format!("{}{path}", self.target.prefix);
                let auth_headers = self.auth_headers(&path).ok_or(PushError::Name)?;
                let host = &self.target.authority;
                let request = put::request(host, auth_headers, &path, (length, reader))?;
                unless_stalled(progress, put::send(store, request)).await
            }
            Connection::Raw(stream, progress) => {
                unless_stalled(progress, raw::send(stream, &path, length, reader)).await
            }
        }
    }

    /// Returns the headers that authenticate a PUT of this path.
    fn auth_headers(&self, path: &str) -> Option<HeaderMap> {
        match &self.credential {
            None => Some(HeaderMap::new()),
            Some(Credential::Token(token)) => {
                Some([(AUTHORIZATION, token.clone())].into_iter().collect())
            }
            Some(Credential::Keys(keys)) => keys.headers(&self.target.authority, path, now()),
        }
    }

    async fn connect(&self) -> Result<Connection, PushError> {
        let no_supervisor = |_| Err("the supervisor makes no more connections".to_owned());
        let stream = (self.dial)().await.unwrap_or_else(no_supervisor);
        let stream = stream.map_err(PushError::Unreachable)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        // Requests are written as a whole, so Nagle's algorithm would only delay their last packets.
        drop(stream.set_nodelay(true));
        let progress = Arc::new(Progress::default());
        let stream = Throttled::new(stream, &progress, &self.state, None);
        Ok(match self.target.protocol {
            Protocol::Tcp => Connection::Raw(BufReader::new(stream), progress),
            Protocol::Http => Connection::Http(put::handshake(stream).await?, progress),
            Protocol::Https => {
                let encrypted = unless_stalled(&progress, self.start_tls(stream)).await?;
                Connection::Http(put::handshake(encrypted).await?, progress)
            }
        })
    }

    async fn start_tls(&self, stream: Throttled) -> Result<TlsStream<Throttled>, PushError> {
        let no_authorities = || {
            PushError::Unreachable(
                "no certificate authorities are configured: set `push-trust`".to_owned(),
            )
        };
        let tls = self.tls.as_ref().ok_or_else(no_authorities)?;
        let name = ServerName::try_from(self.target.host.clone());
        let name = name.map_err(|error| PushError::Unreachable(error.to_string()))?;
        Ok(tls.connect(name, stream).await?)
    }
}

async fn unless_stalled<T>(
    progress: &Progress,
    work: impl Future<Output = Result<T, PushError>>,
) -> Result<T, PushError> {
    tokio::select! {
        done = work => done,
        () = progress.stalled(1) => Err(PushError::Stalled),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use space::store::{Attributes, ROOT};
    use tokio::time::timeout;

    use super::*;

    /// Returns a space with two published files, each with a retry delay of its own.
    fn outbox() -> Arc<SpaceState> {
        let state = SpaceState::new("test", 64 << 10, 8, 8).unwrap();
        let mut store = state.store();
        for name in [b"one", b"two"] {
            let file = store.create(ROOT, name, false, Attributes::default());
            store.close(file.unwrap(), true);
        }
        drop(store);
        state
    }

    #[tokio::test(start_paused = true)]
    async fn dials_to_an_unreachable_store_back_off() {
        let dials = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&dials);
        let dial: Dial = Box::new(move || {
            note.lock().unwrap().push(Instant::now());
            let (sender, answer) = oneshot::channel();
            sender.send(Err("no route".to_owned())).unwrap();
            answer
        });
        let target = "tcp://store.example:1".parse().unwrap();
        let pusher = Pusher::new(&outbox(), target, None, None, dial);
        let two_minutes = timeout(Duration::from_secs(120), pusher.run());
        assert!(two_minutes.await.is_err());
        let dials = dials.lock().unwrap();
        let pauses = dials.windows(2).map(|pair| (pair[1] - pair[0]).as_millis());
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(pauses.collect::<Vec<_>>(), expected);
    }
}
