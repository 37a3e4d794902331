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
use super::is_eligible;
use super::outstanding::Outstanding;
use crate::raw::zero_copy;
use crate::shared::{Shared, increment};
use crate::throttle::STALL_TIMEOUT;

/// It is polled by one task at a time.
pub(super) struct ZeroCopyStream {
    /// Comes first: it is closed before the holds go.
    stream: TcpStream,
    events: Events,
    shared: Arc<Shared>,
    outstanding: Outstanding<Vec<Arc<Slot>>>,
    kernel_behaviour: KernelBehaviour,
}

/// What the kernel does with what it is lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelBehaviour {
    Unknown,
    ZeroCopy,
    Copies,
}

impl ZeroCopyStream {
    /// Go on with a connection by lending.
    pub(super) fn new(stream: impl AsFd, shared: &Arc<Shared>) -> io::Result<Self> {
        // syscalls: fcntl
        let stream = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        zero_copy::enable(stream.as_fd())?;
        let zero_copy = Self {
            events: Events::new(&stream)?,
            stream,
            shared: Arc::clone(shared),
            outstanding: Outstanding::new(),
            kernel_behaviour: KernelBehaviour::Unknown,
        };
        zero_copy.reset_at_close(true)?;
        Ok(zero_copy)
    }

    fn reset_at_close(&self, enabled: bool) -> io::Result<()> {
        SockRef::from(&self.stream).set_linger(enabled.then_some(Duration::ZERO))
    }

    /// Whether the kernel still has something that it was lent.
    pub(super) fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Take in all that has happened; the task is woken when more does.
    pub(super) fn process_events(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while let Poll::Ready(has_error) = self.events.poll(context) {
            if has_error? {
                self.take_completions()?;
            }
        }
        Ok(())
    }

    fn take_completions(&mut self) -> io::Result<()> {
        while let Some(done) = zero_copy::next_completion(self.stream.as_fd())? {
            self.outstanding.complete(done.first, done.last);
            self.kernel_behaviour = match (done.copied, self.kernel_behaviour) {
                (true, _) | (_, KernelBehaviour::Copies) => KernelBehaviour::Copies,
                _ => KernelBehaviour::ZeroCopy,
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
            self.process_events(context)?;
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
        let use_zero_copy = match self.kernel_behaviour {
            KernelBehaviour::Unknown => self.outstanding.is_empty(),
            KernelBehaviour::ZeroCopy => true,
            KernelBehaviour::Copies => false,
        };
        let is_zero_copy = |slice: &IoSlice<'_>| use_zero_copy && is_eligible(&self.shared, slice);
        let zero_copy_count = from.iter().take_while(|slice| is_zero_copy(slice)).count();
        let copied_count = from.iter().take_while(|slice| !is_zero_copy(slice)).count();
        let batch = from
            .get(..zero_copy_count.max(copied_count))
            .unwrap_or(from);
        if zero_copy_count > 0 {
            match self.send_zero_copy(batch) {
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                done => return done,
            }
        }
        // A head goes in one packet with the beginning of what is lent next.
        let flags = match batch.len() < from.len() {
            true => libc::MSG_MORE,
            false => 0,
        };
        SockRef::from(&self.stream).send_vectored_with_flags(batch, flags)
    }

    fn send_zero_copy(&mut self, batch: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut slots = Vec::new();
        for slice in batch {
            // Who sends it holds it: none can be missing.
            let containing = self
                .shared
                .slots_containing(slice)
                .ok_or(io::ErrorKind::InvalidData)?;
            slots.extend(containing);
        }
        // syscalls: sendmsg
        let socket = SockRef::from(&self.stream);
        let count = socket.send_vectored_with_flags(batch, libc::MSG_ZEROCOPY)?;
        // Only a send that took something has a number.
        self.outstanding.push(slots);
        Ok(count)
    }

    pub(super) fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.process_events(context)?;
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
    pub(super) fn shut_down_write(&self) -> io::Result<()> {
        match self.stream.shutdown(Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        }
    }

    /// Say no more, and end when the kernel is done with all that it was lent, or the other side takes nothing
    /// for too long.
    pub(super) async fn drain(mut self: Box<Self>) {
        drop(self.shut_down_write());
        let mut before = zero_copy::acknowledged_bytes(self.stream.as_fd()).unwrap_or(0);
        while timeout(
            STALL_TIMEOUT,
            poll_fn(|context| self.poll_complete(context)),
        )
        .await
        .is_err()
        {
            let now = zero_copy::acknowledged_bytes(self.stream.as_fd()).unwrap_or(before);
            if now == before {
                increment(&self.shared.counters.stalled);
                return;
            }
            before = now;
        }
    }

    fn poll_complete(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.process_events(context)?;
        match self.has_outstanding() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(())),
        }
    }
}

impl Drop for ZeroCopyStream {
    fn drop(&mut self) {
        drop(self.take_completions());
        if !self.has_outstanding() {
            drop(self.reset_at_close(false));
        }
    }
}

#[cfg(test)]
mod tests;
