//! Pushing: a space's files go to a store, unasked.
//!
//! The folder is an outbox. A file is sent when it is published, in the order in which files were, one at
//! a time; and goes from the folder when the store has said that it has it, so its slots return. What a
//! store has not acknowledged is sent again, after a while that doubles each time, for ever: nothing that the guest was
//! told is written is lost, and a store may see a file twice. A file that is changed or gets another name
//! while it is sent stays, and is sent again. Of names that begin with a dot or end in `.tmp` or `.part`
//! nothing is sent: programs write so what they will rename.
//!
//! One store's trouble with one file (it *refuses* it) holds up no other; trouble with the connection
//! holds all up.
//!
//! The process cannot connect: it asks who started it for a connection ([`Dial`]).

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
use space::store::Parcel;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

pub(crate) use outbox::Outbox;
pub use sign::{Keys, KeysError};
pub use target::{NoTarget, Target, Way};

use error::PushError;
use names::path;

use crate::body::{Body, Part};
use crate::shared::{Shared, now};
use crate::throttle::{Moves, Throttled};

/// Gets a connection to the store, or the reason why there is none.
pub type Dial =
    Box<dyn Fn() -> oneshot::Receiver<Result<std::net::TcpStream, String>> + Send + Sync>;

/// What a store knows us by.
#[derive(Debug)]
pub enum Credential {
    /// `Authorization`, as it stands.
    Token(HeaderValue),
    /// Each request is signed with these.
    Keys(Keys),
}

/// How a space pushes.
pub struct Pusher {
    /// Whose files.
    shared: Arc<Shared>,
    /// Where to.
    target: Target,
    /// What the store is shown.
    credential: Option<Credential>,
    /// For TLS.
    tls: Option<TlsConnector>,
    /// How to get there.
    dial: Dial,
}

/// A connection to the store.
enum Line {
    Http(SendRequest<Body>, Arc<Moves>),
    Raw(BufReader<Throttled>, Arc<Moves>),
}

impl Pusher {
    /// Push these files there. From now on they go when they were sent.
    #[must_use]
    pub fn new(
        shared: &Arc<Shared>,
        target: Target,
        credential: Option<Credential>,
        tls: Option<TlsConnector>,
        dial: Dial,
    ) -> Self {
        shared.outbox.on.store(true, Ordering::Relaxed);
        Self {
            shared: Arc::clone(shared),
            target,
            credential,
            tls,
            dial,
        }
    }

    /// Push for ever.
    pub async fn run(self) -> Infallible {
        let outbox = &self.shared.outbox;
        let (mut line, mut failures) = (None, 0);
        loop {
            let now = Instant::now();
            let next = outbox.next(&self.shared.store(), now);
            let Some(parcel) = next else {
                // Nobody keeps a connection for us for long.
                line = None;
                self.wait(now).await;
                continue;
            };
            outbox.begin(parcel.number, self.shared.sent());
            match self.push(&parcel, &mut line).await {
                Ok(()) => {
                    failures = 0;
                    outbox.done(parcel.number);
                    self.shared.store().remove_sent(&parcel);
                }
                Err(why) => {
                    outbox.failed(&self.shared.store(), &parcel, &why, Instant::now());
                    if why.is_of_the_file() {
                        failures = 0;
                        continue;
                    }
                    line = None;
                    failures += 1;
                    drop(parcel);
                    sleep(outbox::back_off(failures)).await;
                }
            }
        }
    }

    /// Until there may be something to send.
    async fn wait(&self, now: Instant) {
        let outbox = &self.shared.outbox;
        let changed = outbox.changed.notified();
        match outbox.due(now) {
            None => changed.await,
            Some(due) => tokio::select! {
                () = changed => {}
                () = sleep_until(due) => {}
            },
        }
    }

    /// Send a file and wait until the store has it.
    async fn push(&self, parcel: &Parcel, line: &mut Option<Line>) -> Result<(), PushError> {
        let line = match line {
            Some(line) => line,
            None => line.insert(self.connect().await?),
        };
        let content = parcel.object.content.clone();
        let length = content.size();
        let part = Part::new(&self.shared, content, 0, length);
        let path = path(&parcel.path);
        match line {
            Line::Http(store, moves) => {
                let path = format!("{}{path}", self.target.prefix);
                let shown = self.shown(&path).ok_or(PushError::Name)?;
                let host = &self.target.authority;
                let request = put::request(host, shown, &path, (length, part))?;
                unless_stalled(moves, put::send(store, request)).await
            }
            Line::Raw(stream, moves) => {
                unless_stalled(moves, raw::send(stream, &path, length, part)).await
            }
        }
    }

    /// The headers by which the store knows that we may PUT this path.
    fn shown(&self, path: &str) -> Option<HeaderMap> {
        match &self.credential {
            None => Some(HeaderMap::new()),
            Some(Credential::Token(token)) => {
                Some([(AUTHORIZATION, token.clone())].into_iter().collect())
            }
            Some(Credential::Keys(keys)) => keys.headers(&self.target.authority, path, now()),
        }
    }

    async fn connect(&self) -> Result<Line, PushError> {
        let gone = |_| Err("nobody connects any more".to_owned());
        let stream = (self.dial)().await.unwrap_or_else(gone);
        let stream = stream.map_err(PushError::Unreachable)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream)?;
        // Requests are written whole.
        drop(stream.set_nodelay(true));
        let moves = Arc::new(Moves::default());
        let stream = Throttled::new(stream, &moves, &self.shared, None);
        Ok(match self.target.way {
            Way::Tcp => Line::Raw(BufReader::new(stream), moves),
            Way::Http => Line::Http(put::begin(stream).await?, moves),
            Way::Https => {
                let secured = unless_stalled(&moves, self.secure(stream)).await?;
                Line::Http(put::begin(secured).await?, moves)
            }
        })
    }

    async fn secure(&self, stream: Throttled) -> Result<TlsStream<Throttled>, PushError> {
        let unknown = || PushError::Unreachable("nobody says whom to trust".to_owned());
        let tls = self.tls.as_ref().ok_or_else(unknown)?;
        let name = ServerName::try_from(self.target.host.clone());
        let name = name.map_err(|error| PushError::Unreachable(error.to_string()))?;
        Ok(tls.connect(name, stream).await?)
    }
}

async fn unless_stalled<T>(
    moves: &Moves,
    work: impl Future<Output = Result<T, PushError>>,
) -> Result<T, PushError> {
    tokio::select! {
        done = work => done,
        () = moves.stalled(1) => Err(PushError::Stalled),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use space::store::{Attributes, ROOT};
    use tokio::time::timeout;

    use super::*;

    /// A space with files, each of which has a pause of its own.
    fn outbox() -> Arc<Shared> {
        let shared = Shared::new("test", 64 << 10, 8, 8).unwrap();
        let mut store = shared.store();
        for name in [b"one", b"two"] {
            let file = store.make(ROOT, name, false, Attributes::default());
            store.close(file.unwrap(), true);
        }
        drop(store);
        shared
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_cannot_be_reached_is_asked_less_and_less_often() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let note = Arc::clone(&asked);
        let dial: Dial = Box::new(move || {
            note.lock().unwrap().push(Instant::now());
            let (asker, answer) = oneshot::channel();
            asker.send(Err("no route".to_owned())).unwrap();
            answer
        });
        let target = "tcp://store.example:1".parse().unwrap();
        let pusher = Pusher::new(&outbox(), target, None, None, dial);
        let two_minutes = timeout(Duration::from_secs(120), pusher.run());
        assert!(two_minutes.await.is_err());
        let asked = asked.lock().unwrap();
        let pauses = asked.windows(2).map(|pair| (pair[1] - pair[0]).as_millis());
        let expected = [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
        assert_eq!(pauses.collect::<Vec<_>>(), expected);
    }
}
