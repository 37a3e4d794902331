//! A connection that counts what moves on it, and sends as fast as the space may.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::places::Place;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};

use crate::limits::{LEAST, STALL};
use crate::shared::Shared;
use crate::zero_copy::Socket;

/// What moves on a connection.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    /// Bytes that the other side said and took.
    bytes: AtomicU64,
    /// It has made a request.
    asked: AtomicBool,
    /// It is we who wait, for the space's rate.
    held: AtomicBool,
    /// It has moved too little for too long.
    given_up: AtomicBool,
}

impl Moves {
    /// The other side has made a request, which counts for as much as it must move.
    pub(crate) fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
        self.bytes.fetch_add(LEAST, Ordering::Relaxed);
    }

    /// Ends when the other side has made no request within so long.
    pub(crate) async fn silent(&self, patience: Duration) {
        tokio::time::sleep(patience).await;
        if self.asked.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// Ends when the other side took and said fewer than `least` bytes for too long.
    pub(crate) async fn stalled(&self, least: u64) {
        let mut before = self.bytes.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(STALL).await;
            let now = self.bytes.load(Ordering::Relaxed);
            let moved = now.wrapping_sub(before);
            if moved < least && !self.held.load(Ordering::Relaxed) {
                self.given_up.store(true, Ordering::Relaxed);
                return;
            }
            before = now;
        }
    }
}

/// A stream of a space's.
pub(crate) struct Throttled {
    socket: Socket,
    moves: Arc<Moves>,
    shared: Arc<Shared>,
    /// Until the next turn to send.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes of this turn that are left.
    credit: usize,
    /// Among the space's connections.
    place: Option<Place>,
}

impl Throttled {
    pub(crate) fn new(
        stream: TcpStream,
        moves: &Arc<Moves>,
        shared: &Arc<Shared>,
        place: Option<Place>,
    ) -> Self {
        Self {
            socket: Socket::new(stream, shared),
            moves: Arc::clone(moves),
            shared: Arc::clone(shared),
            pause: None,
            credit: 0,
            place,
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
}

impl AsyncRead for Throttled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = to.filled().len();
        let done = ready!(self.socket.poll_read(context, to));
        self.note(to.filled().len() - before);
        Poll::Ready(done)
    }
}

impl AsyncWrite for Throttled {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(from)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.take_in(context)?;
        let wanted = from.iter().map(|slice| slice.len()).sum();
        let leave = ready!(self.poll_leave(context, wanted));
        let count = if leave < wanted {
            // As much of the first one as there is leave for; the others come later.
            let first = from.iter().find(|slice| !slice.is_empty());
            let first = first.map_or(&[][..], |slice| slice);
            let first = IoSlice::new(first.get(..leave).unwrap_or(first));
            ready!(self.socket.poll_send(context, &[first]))?
        } else {
            ready!(self.socket.poll_send(context, from))?
        };
        self.credit = self.credit.saturating_sub(count);
        self.note(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is kept here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_shutdown(context)
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        // Who takes nothing has had his time.
        if !self.moves.given_up.load(Ordering::Relaxed) {
            self.socket.leave(self.place.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant as TokioInstant, timeout};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn who_makes_no_request_is_given_up_whatever_else_was_said() {
        let begin = TokioInstant::now();
        let moves = Moves::default();
        // TLS, a preface, half a head.
        moves.bytes.store(10_000, Ordering::Relaxed);
        moves.silent(PATIENCE).await;
        assert_eq!(begin.elapsed(), PATIENCE);
        assert!(moves.given_up.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_made_one_is_not() {
        let moves = Moves::default();
        moves.asked();
        let long = Duration::from_secs(3600);
        assert!(timeout(long, moves.silent(PATIENCE)).await.is_err());
    }

    /// So long a client lasts that takes so many bytes every second, and is cut off by then.
    async fn lasts(bytes: u64, held: bool) -> Option<Duration> {
        let begin = TokioInstant::now();
        let moves = Moves::default();
        moves.asked();
        moves.held.store(held, Ordering::Relaxed);
        let taking = async {
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                moves.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        };
        tokio::select! {
            () = taking => None,
            () = moves.stalled(LEAST) => Some(begin.elapsed()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_byte_now_and_then_is_not_enough() {
        assert_eq!(lasts(0, false).await, Some(STALL));
        assert_eq!(lasts(1, false).await, Some(STALL));
        assert_eq!(lasts(LEAST / 60, false).await, Some(STALL));
        // 2 KiB a second are enough, and a client that we hold back by the space's rate stays.
        assert_eq!(lasts(2048, false).await, None);
        assert_eq!(lasts(0, true).await, None);
    }
}
