//! One connection between a guest and a host program.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::connection::Ends;
use crate::credit::Credit;
use crate::header::{HOST_CID, Header, Operation, SocketType};
use crate::limits::{HOST_BUFFER, MAX_PAYLOAD};
use crate::packet::Packet;

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum State {
    /// The program has connected, and not sent its `CONNECT` line yet.
    Handshake { since: Instant },
    /// The guest has not answered the request yet. The program learns this host port.
    Requested { ends: Ends, host_port: u32 },
    /// The supervisor has not connected to the program yet.
    Connecting { ends: Ends },
    /// Data flows.
    Established { ends: Ends },
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) guest: usize,
    pub(crate) state: State,
    /// The program's socket; none while the supervisor connects.
    pub(crate) socket: Option<OwnedFd>,
    pub(crate) credit: Credit,
    /// What the guest sent and the program's socket did not take yet.
    pub(crate) out: VecDeque<u8>,
    /// Bytes at the beginning of `out` that are not from the guest: the `OK` line.
    pub(crate) greeting: usize,
    /// Which directions the guest has ended: `SHUTDOWN` flags.
    pub(crate) guest_ended: u32,
    /// Which directions the guest was told that the program has ended.
    pub(crate) told_ended: u32,
    /// The program's socket may have data, or room.
    pub(crate) may_read: bool,
    /// The program closed its socket.
    pub(crate) has_hung_up: bool,
    pub(crate) is_ready: bool,
}

impl Stream {
    pub(crate) fn new(guest: usize, state: State, socket: Option<OwnedFd>) -> Self {
        Self {
            guest,
            state,
            socket,
            credit: Credit::new(HOST_BUFFER),
            out: VecDeque::new(),
            greeting: 0,
            guest_ended: 0,
            told_ended: 0,
            may_read: true,
            has_hung_up: false,
            is_ready: false,
        }
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.state, State::Handshake { .. })
    }

    /// Returns both ends, once there is a connection in the guest.
    pub(crate) fn ends(&self) -> Option<Ends> {
        match self.state {
            State::Handshake { .. } => None,
            State::Requested { ends, .. }
            | State::Connecting { ends }
            | State::Established { ends } => Some(ends),
        }
    }

    /// Returns the header of a packet to the guest, with this end's credit.
    pub(crate) fn header(&mut self, operation: Operation, len: u32, flags: u32) -> Option<Header> {
        let ends = self.ends()?;
        let guest = ends.other_than(HOST_CID);
        let host = ends.other_than(guest.cid);
        let (buf_alloc, fwd_cnt) = self.credit.tell();
        let packet = Packet::control(operation, SocketType::Stream, host, guest);
        Some(Header {
            len,
            flags,
            buf_alloc,
            fwd_cnt,
            ..packet.header()
        })
    }

    /// Writes to the program what its socket takes.
    ///
    /// # Errors
    /// The program is gone.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        let Some(socket) = &self.socket else {
            return Ok(());
        };
        while !self.out.is_empty() {
            let (first, _) = self.out.as_slices();
            // syscalls: sendto
            let count = match send(socket, first, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => count,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(error) => return Err(error),
            };
            self.out.drain(..count);
            let greeting = self.greeting.min(count);
            self.greeting -= greeting;
            let taken = u32::try_from(count - greeting).unwrap_or(u32::MAX);
            self.credit.taken(taken);
        }
        Ok(())
    }

    /// Reads what the program sent and the guest has room for. `None` when there is nothing now; empty at the end.
    pub(crate) fn read(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let most = self.credit.available().min(MAX_PAYLOAD);
        let Some(socket) = self.socket.as_ref().filter(|_| most > 0) else {
            return Ok(None);
        };
        let mut bytes = vec![0; most as usize];
        // syscalls: recvfrom
        match recv(socket, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
            Ok((count, _)) => {
                bytes.truncate(count);
                Ok(Some(bytes))
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.may_read = false;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
