//! A connection that lends slots to the kernel instead of having it copy them, where that pays.
//!
//! 1. A connection begins by copying. One that has sent [`COPY_FIRST_BYTES`] bytes lends ([`ZeroCopyStream`]): it sends what lies in
//!    slots, [`MIN_BYTES`] bytes or more at once, with `MSG_ZEROCOPY`. The kernel then sends the slots' own pages and
//!    says on the socket's error queue when it is done with them. Until then the connection holds the
//!    slots ([`outstanding`]), whatever becomes of the file.
//! 2. To a receiver on this host the kernel copies all the same, and later, which costs more. It says so. So a
//!    connection lends once and copies until it knows; and it does not even try where both ends have one address.
//! 3. A send for which the kernel has no leave or memory (`ENOBUFS`) is copied.
//! 4. A process that dies holds nothing any more, but the kernel would go on sending from slots that the next
//!    one fills. So closing a connection that lends means to reset it (`SO_LINGER` of 0 s), until all is
//!    complete: the client knows that it does not have everything. Who is done with a connection, and not it with
//!    what it lent, leaves it to [`ZeroCopyStream::drain`].
//!
//! What TLS encrypts lies in no slot, so it is copied.

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

use crate::shared::Shared;
use stream::ZeroCopyStream;

/// Bytes of a connection that are copied before it lends: for less, to begin costs more than it saves.
const COPY_FIRST_BYTES: usize = 1 << 20;

/// The fewest bytes that are lent; docs/space.md has the figures. More than a frame of HTTP/2 (RFC 9113, 4.2): frames
/// have heads between them, so each would take two sends.
const MIN_BYTES: usize = 32 << 10;

/// A connection of a space's.
pub(crate) struct Socket {
    state: State,
    shared: Arc<Shared>,
}

enum State {
    /// It may lend when so many more bytes have been sent; or never.
    Copying(TcpStream, Option<usize>),
    ZeroCopy(Box<ZeroCopyStream>),
    /// Left to [`ZeroCopyStream::drain`].
    Detached,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, shared: &Arc<Shared>) -> Self {
        Self {
            state: State::Copying(stream, Some(COPY_FIRST_BYTES)),
            shared: Arc::clone(shared),
        }
    }

    /// Let go of what the kernel is done with by now.
    pub(crate) fn process_events(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match &mut self.state {
            State::ZeroCopy(zero_copy) => zero_copy.process_events(context),
            _ => Ok(()),
        }
    }

    /// Send some of this.
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

    /// Read some.
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

    /// Say no more.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.state {
            State::Copying(stream, _) => Pin::new(stream).poll_shutdown(context),
            State::ZeroCopy(zero_copy) => Poll::Ready(zero_copy.shut_down_write()),
            State::Detached => Poll::Ready(Ok(())),
        }
    }

    /// If it is time to, and this may be lent.
    fn try_zero_copy(&mut self, context: &mut Context<'_>, from: &[IoSlice<'_>]) {
        let State::Copying(stream, copy_first @ Some(0)) = &mut self.state else {
            return;
        };
        if !from
            .first()
            .is_some_and(|first| is_eligible(&self.shared, first))
        {
            return;
        }
        *copy_first = None;
        if is_local(stream) {
            return;
        }
        match ZeroCopyStream::new(stream, &self.shared) {
            Ok(zero_copy) => {
                self.state = State::ZeroCopy(Box::new(zero_copy));
                // Who waits for something to read waits for the line that is gone.
                context.waker().wake_by_ref();
            }
            Err(error) => tracing::debug!(%error, "a connection goes on copying"),
        }
    }

    /// Close it when the kernel is done with what was lent; `permit` is kept until then.
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

/// Whether these bytes lie in slots and are many enough to be lent.
fn is_eligible(shared: &Shared, bytes: &[u8]) -> bool {
    bytes.len() >= MIN_BYTES && shared.ram().offset_of(bytes).is_some()
}

/// Whether the other side is surely on this host.
fn is_local(stream: &TcpStream) -> bool {
    let addresses = stream
        .peer_addr()
        .and_then(|peer| Ok((peer, stream.local_addr()?)));
    addresses
        .is_ok_and(|(peer, own)| peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip())
}
