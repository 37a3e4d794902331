//! A connection with zero-copy sends, and the slots of its outstanding sends.

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
use crate::limits::STALL_TIMEOUT;
use crate::raw::zero_copy;
use crate::space_state::{SpaceState, increment};

/// Smallest slice that is sent without copying; docs/design/2026-11-space-zero-copy.md has the measurements. It is larger than a frame of HTTP/2
/// (RFC 9113, 4.2): frames have headers between them, so each frame would need two sends.
pub(super) const MIN_BYTES: usize = 32 << 10;

/// A connection with zero-copy sends. One task at a time polls it.
pub(super) struct ZeroCopyStream {
    /// The first field, so the socket is closed before the slots of outstanding sends are released.
    stream: TcpStream,
    events: Events,
    state: Arc<SpaceState>,
    outstanding: Outstanding<Vec<Arc<Slot>>>,
    kernel_behaviour: KernelBehaviour,
}

/// Whether the kernel copies the bytes of zero-copy sends on this connection, according to its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KernelBehaviour {
    Unknown,
    ZeroCopy,
    Copies,
}

impl ZeroCopyStream {
    /// Enables zero-copy sends on a duplicate of a connection's descriptor.
    pub(super) fn new(stream: impl AsFd, state: &Arc<SpaceState>) -> io::Result<Self> {
        // syscalls: fcntl
        let stream = TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        zero_copy::enable(stream.as_fd())?;
        let zero_copy = Self {
            events: Events::new(&stream)?,
            stream,
            state: Arc::clone(state),
            outstanding: Outstanding::new(),
            kernel_behaviour: KernelBehaviour::Unknown,
        };
        zero_copy.reset_at_close(true)?;
        Ok(zero_copy)
    }

    fn reset_at_close(&self, enabled: bool) -> io::Result<()> {
        SockRef::from(&self.stream).set_linger(enabled.then_some(Duration::ZERO))
    }

    /// Returns whether the kernel still uses slots.
    pub(super) fn has_outstanding(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Processes all pending events. The task is woken at the next event.
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

    /// Sends the first run of slices that are all eligible for zero-copy, or all not.
    fn send(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let empty = from.iter().take_while(|slice| slice.is_empty()).count();
        let from = from.get(empty..).unwrap_or_default();
        let use_zero_copy = match self.kernel_behaviour {
            KernelBehaviour::Unknown => self.outstanding.is_empty(),
            KernelBehaviour::ZeroCopy => true,
            KernelBehaviour::Copies => false,
        };
        let is_zero_copy = |slice: &IoSlice<'_>| use_zero_copy && is_eligible(&self.state, slice);
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
        // `MSG_MORE` puts a response's head into one packet with the beginning of the slice that follows.
        let flags = match batch.len() < from.len() {
            true => libc::MSG_MORE,
            false => 0,
        };
        SockRef::from(&self.stream).send_vectored_with_flags(batch, flags)
    }

    fn send_zero_copy(&mut self, batch: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut slots = Vec::new();
        for slice in batch {
            // The sender keeps these slots in use, so none can be missing.
            let containing = self
                .state
                .slots_containing(slice)
                .ok_or(io::ErrorKind::InvalidData)?;
            slots.extend(containing);
        }
        // syscalls: sendmsg
        let socket = SockRef::from(&self.stream);
        let count = socket.send_vectored_with_flags(batch, libc::MSG_ZEROCOPY)?;
        // The kernel numbers only the sends that succeed.
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

    /// Shuts down the sending direction.
    pub(super) fn shut_down_write(&self) -> io::Result<()> {
        match self.stream.shutdown(Shutdown::Write) {
            Err(error) if error.kind() != io::ErrorKind::NotConnected => Err(error),
            _ => Ok(()),
        }
    }

    /// Shuts down the sending direction and waits until all zero-copy sends are complete, or until the peer acknowledges no
    /// byte within [`STALL_TIMEOUT`].
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
                increment(&self.state.counters.stalled);
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

/// Returns whether these bytes are in slots and enough for a zero-copy send.
pub(super) fn is_eligible(state: &SpaceState, bytes: &[u8]) -> bool {
    bytes.len() >= MIN_BYTES && state.slot_file().offset_of(bytes).is_some()
}

#[cfg(test)]
mod tests;
