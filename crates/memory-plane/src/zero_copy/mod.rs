//! A connection that lends slots to the kernel instead of having it copy them, where that pays.
//!
//! 1. A connection begins by copying. One that has sent [`BEFORE`] bytes lends ([`InFlight`]): it sends what lies in
//!    slots, [`in_flight::WORTH`] bytes or more at once, with `MSG_ZEROCOPY`. The kernel then sends the slots' own pages and
//!    says on the socket's error queue when it is done with them. Until then the connection holds the
//!    slots ([`outstanding`]), whatever becomes of the file.
//! 2. To a receiver on this host the kernel copies all the same, and later, which costs more. It says so. So a
//!    connection lends once and copies until it knows; and it does not even try where both ends have one address.
//! 3. A send for which the kernel has no leave or memory (`ENOBUFS`) is copied.
//! 4. A process that dies holds nothing any more, but the kernel would go on sending from slots that the next
//!    one fills. So closing a connection that lends means to reset it (`SO_LINGER` of 0 s), until all is
//!    complete: the client knows that it does not have everything. Who is done with a connection, and not it with
//!    what it lent, leaves it to [`InFlight::farewell`].
//!
//! What TLS encrypts lies in no slot, so it is copied.

mod events;
mod in_flight;
mod outstanding;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::places::Place;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::runtime::Handle;

use crate::shared::Shared;
use in_flight::{InFlight, is_worth};

/// Bytes of a connection that are copied before it lends: for less, to begin costs more than it saves.
const BEFORE: usize = 1 << 20;

/// A connection of a space's.
pub(crate) struct Socket {
    line: Line,
    shared: Arc<Shared>,
}

enum Line {
    /// It may lend when so many more bytes have been sent; or never.
    Copying(TcpStream, Option<usize>),
    InFlight(Box<InFlight>),
    /// Left to [`InFlight::farewell`].
    Left,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream, shared: &Arc<Shared>) -> Self {
        Self {
            line: Line::Copying(stream, Some(BEFORE)),
            shared: Arc::clone(shared),
        }
    }

    /// Let go of what the kernel is done with by now.
    pub(crate) fn take_in(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match &mut self.line {
            Line::InFlight(lending) => lending.take_in(context),
            _ => Ok(()),
        }
    }

    /// Send some of this.
    pub(crate) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_to_lend(context, from);
        match &mut self.line {
            Line::Copying(stream, before) => {
                let count = ready!(Pin::new(stream).poll_write_vectored(context, from))?;
                *before = before.map(|before| before.saturating_sub(count));
                Poll::Ready(Ok(count))
            }
            Line::InFlight(lending) => lending.poll_send(context, from),
            Line::Left => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Read some.
    pub(crate) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.line {
            Line::Copying(stream, _) => Pin::new(stream).poll_read(context, to),
            Line::InFlight(lending) => lending.poll_read(context, to),
            Line::Left => Poll::Ready(Ok(())),
        }
    }

    /// Say no more.
    pub(crate) fn poll_shutdown(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.line {
            Line::Copying(stream, _) => Pin::new(stream).poll_shutdown(context),
            Line::InFlight(lending) => Poll::Ready(lending.shut_down()),
            Line::Left => Poll::Ready(Ok(())),
        }
    }

    /// If it is time to, and this may be lent.
    fn begin_to_lend(&mut self, context: &mut Context<'_>, from: &[IoSlice<'_>]) {
        let Line::Copying(stream, before @ Some(0)) = &mut self.line else {
            return;
        };
        if !from
            .first()
            .is_some_and(|first| is_worth(&self.shared, first))
        {
            return;
        }
        *before = None;
        if is_near(stream) {
            return;
        }
        match InFlight::begin(stream, &self.shared) {
            Ok(lending) => {
                self.line = Line::InFlight(Box::new(lending));
                // Who waits for something to read waits for the line that is gone.
                context.waker().wake_by_ref();
            }
            Err(error) => tracing::debug!(%error, "a connection goes on copying"),
        }
    }

    /// Close it when the kernel is done with what was lent; `place` is kept until then.
    pub(crate) fn leave(&mut self, place: Option<Place>) {
        let Line::InFlight(lending) = std::mem::replace(&mut self.line, Line::Left) else {
            return;
        };
        if let (true, Ok(runtime)) = (lending.is_awaited(), Handle::try_current()) {
            runtime.spawn(async move {
                lending.farewell().await;
                drop(place);
            });
        }
    }
}

/// Whether the other side is surely on this host.
fn is_near(stream: &TcpStream) -> bool {
    let addresses = stream
        .peer_addr()
        .and_then(|peer| Ok((peer, stream.local_addr()?)));
    addresses
        .is_ok_and(|(peer, own)| peer.ip().to_canonical().is_loopback() || peer.ip() == own.ip())
}
