//! A connection that counts what moves on it, and sends as fast as the space may.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};

use crate::shared::Shared;

/// Who is being sent something takes some of it within so long.
const STALL: Duration = Duration::from_secs(30);

/// What moves on a connection.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Bytes that the other side said and took.
    bytes: AtomicU64,
    /// It is we who wait, for the space's rate.
    held: AtomicBool,
}

impl Moves {
    /// Ends when the other side neither took nor said anything for too long.
    pub(crate) async fn stalled(&self) {
        let mut before = self.bytes.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(STALL).await;
            let now = self.bytes.load(Ordering::Relaxed);
            if now == before && !self.held.load(Ordering::Relaxed) {
                return;
            }
            before = now;
        }
    }
}

/// A stream of a space's.
pub(crate) struct Watched {
    stream: TcpStream,
    moves: Arc<Moves>,
    shared: Arc<Shared>,
    /// Until the next turn to send.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes of this turn that are left.
    credit: usize,
}

impl Watched {
    pub(crate) fn new(stream: TcpStream, moves: &Arc<Moves>, shared: &Arc<Shared>) -> Self {
        Self {
            stream,
            moves: Arc::clone(moves),
            shared: Arc::clone(shared),
            pause: None,
            credit: 0,
        }
    }

    fn note(&self, count: usize) {
        self.moves.bytes.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// How many of this many bytes may be sent, at least one.
    fn poll_leave(&mut self, context: &mut Context<'_>, wanted: usize) -> Poll<usize> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
                self.moves.held.store(false, Ordering::Relaxed);
            }
            if self.credit > 0 || wanted == 0 {
                return Poll::Ready(wanted.min(self.credit));
            }
            let now = Instant::now();
            let Some(turn) = self.shared.rate.turn(now, wanted) else {
                return Poll::Ready(wanted);
            };
            self.credit = turn.bytes;
            if turn.at > now {
                self.pause = Some(Box::pin(sleep_until(turn.at.into())));
                self.moves.held.store(true, Ordering::Relaxed);
            }
        }
    }

    fn sent(&mut self, count: usize) -> Poll<io::Result<usize>> {
        self.credit = self.credit.saturating_sub(count);
        self.note(count);
        Poll::Ready(Ok(count))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let done = ready!(Pin::new(&mut self.stream).poll_read(context, to));
        self.note(to.filled().len() - before);
        Poll::Ready(done)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        let leave = ready!(self.poll_leave(context, from.len()));
        let from = from.get(..leave).unwrap_or(from);
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, from))?;
        self.sent(count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = from.iter().map(|slice| slice.len()).sum();
        let leave = ready!(self.poll_leave(context, wanted));
        if leave < wanted {
            // As much of the first one as there is leave for; the others come later.
            let first = from.iter().find(|slice| !slice.is_empty());
            return self.poll_write(context, first.map_or(&[], |slice| &**slice));
        }
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, from))?;
        self.sent(count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
