//! The sampler of the daemon, and the clients that listen to it.
//!
//! The sampler starts with the first listener and ends with the last, so that a daemon without a listener does not
//! wake up for it. A watch channel has only the last line: a slow listener misses lines, and delays no other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use hyper::body::{Bytes, Frame};
use observe::rates::WATTS_PER_CPU;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use super::history::{History, VmHistory};
use crate::live::{ApiState, Live, Sampler};
use crate::serve::api::daemon::Daemon;

/// Returns the next interval, given the daemon's state; `None` if there is none yet or no more.
pub(crate) type Sample = Box<dyn FnMut(&ApiState) -> Option<Live> + Send>;

/// The most clients that listen at one time.
pub(super) const MAX_LISTENERS: usize = 16;

/// The length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The length of the first interval: a page that opens has figures early.
const FIRST: Duration = Duration::from_millis(200);

/// A line: an interval as JSON, with the end of the line.
type Line = Option<Bytes>;

/// The sampler's state, shared by all clients.
#[derive(Clone)]
pub(crate) struct Hub(Arc<Shared>);

struct Shared {
    /// The daemon that this process is, if it is one.
    daemon: Option<Daemon>,
    /// Makes a sampler for the first listener.
    make: Box<dyn Fn() -> Sample + Send + Sync>,
    lines: watch::Sender<Line>,
    /// Whether the sampler runs. Locked while a listener comes, and while the sampler decides to end.
    running: Mutex<bool>,
    history: Mutex<History>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    /// Returns a hub of the daemon that this process is.
    pub(in crate::serve) fn of_daemon(daemon: Daemon) -> Self {
        let make = || -> Sample {
            let mut sampler = Sampler::new(WATTS_PER_CPU, false);
            Box::new(move |state| sampler.next(state))
        };
        Self::with(Some(daemon), Box::new(make))
    }

    /// Returns a hub that has the figures of another source. `make` begins them for the first listener.
    pub(crate) fn of(make: impl Fn() -> Sample + Send + Sync + 'static) -> Self {
        Self::with(None, Box::new(make))
    }

    fn with(daemon: Option<Daemon>, make: Box<dyn Fn() -> Sample + Send + Sync>) -> Self {
        Self(Arc::new(Shared {
            daemon,
            make,
            lines: watch::Sender::new(None),
            running: Mutex::new(false),
            history: Mutex::new(History::default()),
        }))
    }

    /// Adds a listener, and returns the body of its answer; `None` if there are too many.
    pub(super) fn listen(&self, events: bool) -> Option<Body> {
        let mut running = lock(&self.0.running);
        if self.0.lines.receiver_count() >= MAX_LISTENERS {
            return None;
        }
        let lines = self.0.lines.subscribe();
        if !*running {
            *running = true;
            self.0.lines.send_replace(None);
            tokio::spawn(sample(Arc::clone(&self.0)));
        }
        let (pieces, body) = mpsc::channel(1);
        tokio::spawn(relay(lines, pieces, events));
        Some(Body::new(Pieces(body)))
    }

    /// Returns the history of a VM, or the last minute of every VM.
    pub(super) fn history(&self, vm: Option<&str>) -> Vec<VmHistory> {
        lock(&self.0.history).of(vm)
    }
}

impl Shared {
    /// Returns whether the sampler may end, because there is no listener.
    fn may_end(&self) -> bool {
        let mut running = lock(&self.running);
        *running = self.lines.receiver_count() > 0;
        !*running
    }
}

/// Samples until there is no listener.
async fn sample(shared: Arc<Shared>) {
    let mut sampler = (shared.make)();
    let mut next = Instant::now();
    let mut pause = FIRST;
    loop {
        if shared.may_end() {
            return;
        }
        let state = match &shared.daemon {
            Some(daemon) => daemon.api_state().await,
            None => ApiState::default(),
        };
        let kept = Arc::clone(&shared);
        // The observer reads files of `/proc`, which may take milliseconds.
        let sampled = spawn_blocking(move || {
            let line = sampler(&state).and_then(|live| {
                lock(&kept.history).add(&live);
                let mut line = serde_json::to_vec(&live).ok()?;
                line.push(b'\n');
                Some(Bytes::from(line))
            });
            (sampler, line)
        });
        let Ok((returned, line)) = sampled.await else {
            tracing::error!("internal error, report it as a bug: the sampler of the page ended");
            *lock(&shared.running) = false;
            return;
        };
        sampler = returned;
        if line.is_some() {
            shared.lines.send_replace(line);
        }
        next = (next + pause).max(Instant::now());
        pause = INTERVAL;
        sleep_until(next).await;
    }
}

/// Passes lines on to a client until the client is gone. A client that is slower than the sampler misses lines.
async fn relay(mut lines: watch::Receiver<Line>, pieces: mpsc::Sender<Bytes>, events: bool) {
    loop {
        let line = lines.borrow_and_update().clone();
        if let Some(line) = line {
            let piece = if events { event(&line) } else { line };
            if pieces.send(piece).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = pieces.closed() => return,
            changed = lines.changed() => if changed.is_err() { return },
        }
    }
}

/// Returns a line as a server-sent event.
fn event(line: &Bytes) -> Bytes {
    [b"data: ", line.as_ref(), b"\n"].concat().into()
}

/// The body of an answer, made of pieces as they arrive.
struct Pieces(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.0.poll_recv(context);
        piece.map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
