//! A connection that counts the bytes of both directions and obeys the space's rate limit.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::connection_limit::ConnectionPermit;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};

use crate::limits::{MIN_PROGRESS, STALL_TIMEOUT};
use crate::space_state::SpaceState;
use crate::zero_copy::Socket;

/// The progress of a connection.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes that the peer sent and read.
    bytes: AtomicU64,
    /// Whether the peer has sent a request.
    has_request: AtomicBool,
    /// Whether this side waits for the space's rate limit.
    throttled: AtomicBool,
    /// Whether the peer exceeded a timeout.
    timed_out: AtomicBool,
}

impl Progress {
    /// Records a request of the peer. It counts as [`MIN_PROGRESS`] bytes.
    pub(crate) fn note_request(&self) {
        self.has_request.store(true, Ordering::Relaxed);
        self.bytes.fetch_add(MIN_PROGRESS, Ordering::Relaxed);
    }

    /// Completes when the peer has sent no request within `timeout`; never completes otherwise.
    pub(crate) async fn no_request(&self, timeout: Duration) {
        tokio::time::sleep(timeout).await;
        if self.has_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.timed_out.store(true, Ordering::Relaxed);
    }

    /// Completes when the peer read and sent fewer than `least` bytes in a period of [`STALL_TIMEOUT`].
    pub(crate) async fn stalled(&self, least: u64) {
        let mut before = self.bytes.load(Ordering::Relaxed);
        loop {
            tokio::time::sleep(STALL_TIMEOUT).await;
            let now = self.bytes.load(Ordering::Relaxed);
            let moved = now.wrapping_sub(before);
            if moved < least && !self.throttled.load(Ordering::Relaxed) {
                self.timed_out.store(true, Ordering::Relaxed);
                return;
            }
            before = now;
        }
    }
}

/// A rate-limited stream of a space.
pub(crate) struct Throttled {
    socket: Socket,
    progress: Arc<Progress>,
    state: Arc<SpaceState>,
    /// Sleeps until the next reservation may be used.
    pause: Option<Pin<Box<Sleep>>>,
    /// Bytes of the current reservation that are not used yet.
    reserved: usize,
    /// The client's permit; a pushed connection needs none.
    permit: Option<ConnectionPermit>,
}

impl Throttled {
    pub(crate) fn new(
        stream: TcpStream,
        progress: &Arc<Progress>,
        state: &Arc<SpaceState>,
        permit: Option<ConnectionPermit>,
    ) -> Self {
        Self {
            socket: Socket::new(stream, state),
            progress: Arc::clone(progress),
            state: Arc::clone(state),
            pause: None,
            reserved: 0,
            permit,
        }
    }

    fn count(&self, count: usize) {
        self.progress
            .bytes
            .fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Waits for the rate limit and returns how many of `requested` bytes may be sent now: at least one.
    fn poll_reservation(&mut self, context: &mut Context<'_>, requested: usize) -> Poll<usize> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
                self.progress.throttled.store(false, Ordering::Relaxed);
            }
            if self.reserved > 0 || requested == 0 {
                return Poll::Ready(requested.min(self.reserved));
            }
            let now = Instant::now();
            let Some(reservation) = self.state.rate.reserve(now, requested) else {
                return Poll::Ready(requested);
            };
            self.reserved = reservation.bytes;
            if reservation.at > now {
                self.pause = Some(Box::pin(sleep_until(reservation.at.into())));
                self.progress.throttled.store(true, Ordering::Relaxed);
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
        self.count(to.filled().len() - before);
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
        self.socket.process_events(context)?;
        let requested = from.iter().map(|slice| slice.len()).sum();
        let allowed = ready!(self.poll_reservation(context, requested));
        let count = if allowed < requested {
            // Send the allowed part of the first slice; the rest follows with later reservations.
            let first = from.iter().find(|slice| !slice.is_empty());
            let first = first.map_or(&[][..], |slice| slice);
            let first = IoSlice::new(first.get(..allowed).unwrap_or(first));
            ready!(self.socket.poll_send(context, &[first]))?
        } else {
            ready!(self.socket.poll_send(context, from))?
        };
        self.reserved = self.reserved.saturating_sub(count);
        self.count(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // No bytes are buffered here.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_shutdown(context)
    }
}

impl Drop for Throttled {
    fn drop(&mut self) {
        // A peer that exceeded a timeout gets no more time for outstanding zero-copy sends.
        if !self.progress.timed_out.load(Ordering::Relaxed) {
            self.socket.detach(self.permit.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant as TokioInstant, timeout};

    use super::*;

    const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

    #[tokio::test(start_paused = true)]
    async fn a_client_without_a_request_times_out_whatever_bytes_it_sent() {
        let begin = TokioInstant::now();
        let progress = Progress::default();
        // As of a TLS handshake, a preface, and half a head.
        progress.bytes.store(10_000, Ordering::Relaxed);
        progress.no_request(REQUEST_TIMEOUT).await;
        assert_eq!(begin.elapsed(), REQUEST_TIMEOUT);
        assert!(progress.timed_out.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_with_a_request_does_not_time_out() {
        let progress = Progress::default();
        progress.note_request();
        let long = Duration::from_secs(3600);
        assert!(
            timeout(long, progress.no_request(REQUEST_TIMEOUT))
                .await
                .is_err()
        );
    }

    /// Returns the time after which a client stalls that reads `bytes` every second; `None` if it does not within 600 s.
    async fn time_until_stalled(bytes: u64, throttled: bool) -> Option<Duration> {
        let begin = TokioInstant::now();
        let progress = Progress::default();
        progress.note_request();
        progress.throttled.store(throttled, Ordering::Relaxed);
        let taking = async {
            for _ in 0..600 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                progress.bytes.fetch_add(bytes, Ordering::Relaxed);
            }
        };
        tokio::select! {
            () = taking => None,
            () = progress.stalled(MIN_PROGRESS) => Some(begin.elapsed()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_below_the_minimum_progress_stalls() {
        assert_eq!(time_until_stalled(0, false).await, Some(STALL_TIMEOUT));
        assert_eq!(time_until_stalled(1, false).await, Some(STALL_TIMEOUT));
        assert_eq!(
            time_until_stalled(MIN_PROGRESS / 60, false).await,
            Some(STALL_TIMEOUT)
        );
        // 2 KiB per second suffice, and a client that waits for the space's rate limit does not stall.
        assert_eq!(time_until_stalled(2048, false).await, None);
        assert_eq!(time_until_stalled(0, true).await, None);
    }
}
