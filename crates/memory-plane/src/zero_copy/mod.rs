//! Zero-copy sends (`MSG_ZEROCOPY`): where it pays, the kernel sends the pages of slots without copying them.
//!
//! ```text
//!   Copying --after COPY_FIRST_BYTES--> ZeroCopyStream --dropped with outstanding sends--> drain, in a task of its own
//!                                            |  ^
//!                    sendmsg(MSG_ZEROCOPY)   v  |  completions (error queue)
//!                                          kernel
//! ```
//!
//! 1. A connection begins with ordinary sends, which copy. After [`COPY_FIRST_BYTES`] bytes it becomes a
//!    [`ZeroCopyStream`]: it sends slices of slots of at least [`stream::MIN_BYTES`] bytes with `MSG_ZEROCOPY`. The kernel
//!    sends the slots' own pages and reports on the socket's error queue when it no longer uses them. Until then the
//!    connection keeps the slots in use ([`outstanding`]), whatever happens to the file.
//! 2. For a receiver on the same host, the kernel copies the bytes nevertheless, and later, which costs more than an ordinary
//!    send. The completion says so. Therefore a connection makes one zero-copy send and copies until its completion
//!    arrives. It makes none if the peer has a loopback address or the address of this side.
//! 3. A zero-copy send that fails with `ENOBUFS` (no locked memory allowed or available) is repeated as an ordinary send.
//! 4. A process that dies frees its slots, but the kernel would continue to send from slots that the next process fills.
//!    Therefore closing a zero-copy connection resets it (`SO_LINGER` of 0 s) as long as sends are outstanding, so the client
//!    notices that its response is incomplete. When a connection ends with outstanding sends, [`ZeroCopyStream::drain`] waits
//!    for them.
//!
//! TLS encrypts into buffers outside the slots, so its bytes are copied.

mod events;
mod outstanding;
mod stream;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::connection_limit::ConnectionPermit;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::space_state::SpaceState;
use stream::{ZeroCopyStream, is_eligible};

/// Bytes that a connection sends by copying first. Below this, setting up zero-copy sends costs more than it saves.
const COPY_FIRST_BYTES: usize = 1 << 20;

/// A connection of a space, with or without zero-copy sends.
pub(crate) struct Socket {
    state: State,
    space: Arc<SpaceState>,
}

enum State {
    /// Sends copy. After this many more bytes the connection may switch to zero-copy sends; with `None`, never.
    Copying(TcpStream, Option<usize>),
    ZeroCopy(Box<ZeroCopyStream>),
    /// [`ZeroCopyStream::drain`] owns the connection now.
    Detached,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, state: &Arc<SpaceState>) -> Self {
        Self {
            state: State::Copying(stream, Some(COPY_FIRST_BYTES)),
            space: Arc::clone(state),
        }
    }

    /// Releases the slots of all sends that are complete by now.
    pub(crate) fn process_events(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match &mut self.state {
            State::ZeroCopy(zero_copy) => zero_copy.process_events(context),
            _ => Ok(()),
        }
    }

    /// Sends some of the bytes.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.try_zero_copy(context, from);
        match &mut self.state {
            State::Copying(stream, copy_first) => {
                let count = ready!(Pin::new(stream).poll_write_vectored(context, from))?;
                *copy_first = copy_first.map(|copy_first| copy_first.saturating_sub(count));
                Poll::Ready(Ok(count))
            }
            State::ZeroCopy(zero_copy) => zero_copy.poll_send(context, from),
            State::Detached => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Reads some bytes.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Copying(stream, _) => Pin::new(stream).poll_read(context, to),
            State::ZeroCopy(zero_copy) => zero_copy.poll_read(context, to),
            State::Detached => Poll::Ready(Ok(())),
        }
    }

    /// Shuts down the sending direction.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Copying(stream, _) => Pin::new(stream).poll_shutdown(context),
            State::ZeroCopy(zero_copy) => Poll::Ready(zero_copy.shut_down_write()),
            State::Detached => Poll::Ready(Ok(())),
        }
    }

    /// Switches to zero-copy sends, if enough bytes were copied and the next slice is eligible.
    fn try_zero_copy(&mut self, context: &mut Context<'_>, from: &[IoSlice<'_>]) {
        let State::Copying(stream, copy_first @ Some(0)) = &mut self.state else {
            return;
        };
        if !from
            .first()
            .is_some_and(|first| is_eligible(&self.space, first))
        {
            return;
        }
        *copy_first = None;
        if is_local(stream) {
            return;
        }
        match ZeroCopyStream::new(stream, &self.space) {
            Ok(zero_copy) => {
                self.state = State::ZeroCopy(Box::new(zero_copy));
                // A pending read waits for the old stream, so wake the task to poll the new one.
                context.waker().wake_by_ref();
            }
            Err(error) => {
                tracing::debug!(%error, "cannot enable zero-copy sends; the connection continues to copy");
            }
        }
    }

    /// Closes the connection when all zero-copy sends are complete. The permit is kept until then.
    pub(crate) fn detach(&mut self, permit: Option<ConnectionPermit>) {
        let State::ZeroCopy(zero_copy) = std::mem::replace(&mut self.state, State::Detached) else {
            return;
        };
        if let (true, Ok(runtime)) = (zero_copy.has_outstanding(), Handle::try_current()) {
            runtime.spawn(async move {
                zero_copy.drain().await;
                drop(permit);
            });
        }
    }
}

/// Returns whether the peer is certainly on this host.
fn is_local(stream: &TcpStream) -> bool {
    let addresses = stream
        .peer_addr()
        .and_then(|peer| Ok((peer, stream.local_addr()?)));
    addresses
        .is_ok_and(|(peer, own)| peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip())
}
