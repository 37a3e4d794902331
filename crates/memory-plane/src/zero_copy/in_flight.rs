//! A connection that lends, and what it has lent.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::SockRef;
use space::store::Slot;
use tokio::io::ReadBuf;
use tokio::time::timeout;

use super::events::Events;
use super::outstanding::Outstanding;
use crate::limits::STALL;
use crate::raw::lent;
use crate::shared::{Shared, add};

/// The fewest bytes that are lent; docs/space.md has the figures. More than a frame of HTTP/2 (RFC 9113, 4.2): frames
/// have heads between them, so each would take two sends.
const WORTH: usize = 32 << 10;

/// It is polled by one task at a time.
pub(super) struct InFlight {
    /// Comes first: it is closed before the holds go.
    stream: TcpStream,
    events: Events,
    shared: Arc<Shared>,
    outstanding: Outstanding<Vec<Arc<Slot>>>,
    verdict: Verdict,
}

/// What the kernel does with what it is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Unknown,
    Sends,
    Copies,
}

impl InFlight {
    /// Go on with a connection by lending.
    pub(super) fn begin(stream: impl AsFd, shared: &Arc<Shared>) -> io::Result<Self> {
        // syscalls: fcntl
        let stream = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        lent::announce(stream.as_fd())?;
        let lending = Self {
            events: Events::new(&stream)?,
            stream,
            shared: Arc::clone(shared),
            outstanding: Outstanding::new(),
            verdict: Verdict::Unknown,
        };
        lending.reset_at_close(true)?;
        Ok(lending)
    }

    fn reset_at_close(&self, wanted: bool) -> io::Result<()> {
        SockRef::from(&self.stream).set_linger(wanted.then_some(Duration::ZERO))
    }

    /// Whether the kernel still has something that it was lent.
    pub(super) fn is_awaited(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Take in all that has happened; the task is woken when more does.
    pub(super) fn take_in(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(has_told) = self.events.poll(context) {
            if has_told? {
                self.take_completions()?;
            }
        }
        Ok(())
    }

    fn take_completions(&mut self) -> io::Result<()> {
        while let Some(done) = lent::completion(self.stream.as_fd())? {
            self.outstanding.complete(done.first, done.last);
            self.verdict = match (done.copied, self.verdict) {
                (true, _) | (_, Verdict::Copies) => Verdict::Copies,
                _ => Verdict::Sends,
            };
        }
        Ok(())
    }

    pub(super) fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            self.take_in(context)?;
            if !self.events.writable {
                return Poll::Pending;
            }
            match self.send(from) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.events.writable = false;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// Lend what comes first, or have it copied.
    fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let empty = from.iter().take_while(|slice| slice.is_empty()).count();
        let from = from.get(empty..).unwrap_or_default();
        let lends = match self.verdict {
            Verdict::Unknown => self.outstanding.is_empty(),
            Verdict::Sends => true,
            Verdict::Copies => false,
        };
        let is_lent = |slice: &IoSlice<'_>| lends && is_worth(&self.shared, slice);
        let lent = from.iter().take_while(|slice| is_lent(slice)).count();
        let copied = from.iter().take_while(|slice| !is_lent(slice)).count();
        let run = from.get(..lent.max(copied)).unwrap_or(from);
        if lent > 0 {
            match self.lend(run) {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                done => return done,
            }
        }
        // A head goes in one packet with the beginning of what is lent next.
        let flags = match run.len() < from.len() {
            true => libc::MSG_MORE,
            false => 0,
        };
        SockRef::from(&self.stream).send_vectored_with_flags(run, flags)
    }

    fn lend(&mut self, run: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut holds = Vec::new();
        for slice in run {
            // Who sends it holds it: none can be missing.
            let held = self.shared.hold(slice).ok_or(io::ErrorKind::InvalidData)?;
            holds.extend(held);
        }
        // syscalls: sendmsg
        let socket = SockRef::from(&self.stream);
        let count = socket.send_vectored_with_flags(run, libc::MSG_ZEROCOPY)?;
        // Only a send that took something has a number.
        self.outstanding.lent(holds);
        Ok(count)
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.take_in(context)?;
            if !self.events.readable {
                return Poll::Pending;
            }
            match self.stream.read(to.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.events.readable = false;
                }
                done => {
                    to.advance(done?);
                    return Poll::Ready(Ok(()));
                }
            }
        }
    }

    /// Say no more.
    pub(super) fn shut_down(&self) -> io::Result<()> {
        match self.stream.shutdown(Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        }
    }

    /// Say no more, and end when the kernel is done with all that it was lent, or the other side takes nothing
    /// for too long.
    pub(super) async fn farewell(mut self: Box<Self>) {
        drop(self.shut_down());
        let mut before = lent::acknowledged(self.stream.as_fd()).unwrap_or(0);
        while timeout(STALL, poll_fn(|context| self.poll_complete(context)))
            .await
            .is_err()
        {
            let now = lent::acknowledged(self.stream.as_fd()).unwrap_or(before);
            if now == before {
                add(&self.shared.counts.stalled);
                return;
            }
            before = now;
        }
    }

    fn poll_complete(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.take_in(context)?;
        match self.is_awaited() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        drop(self.take_completions());
        if !self.is_awaited() {
            drop(self.reset_at_close(false));
        }
    }
}

/// Whether these bytes lie in slots and are many enough to be lent.
pub(super) fn is_worth(shared: &Shared, bytes: &[u8]) -> bool {
    bytes.len() >= WORTH && shared.ram().place(bytes).is_some()
}

#[cfg(test)]
mod tests;
