//! Moves bytes between a host program's socket and a guest.

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::connection::Ends;
use crate::deferred::Copied;
use crate::header::{HOST_CID, Operation, SHUTDOWN_BOTH, SHUTDOWN_RECEIVE, SHUTDOWN_SEND};
use crate::plane::Plane;
use crate::stream::{State, Stream};

/// Packets with data that wait for a guest's receive buffers, beyond which programs' sockets are not read.
const MAX_WAITING: usize = 16;

/// Streams that are served in a row, before guests are served.
const STREAMS: usize = 64;

impl Plane {
    /// Serves streams that may have something to do.
    pub(crate) fn serve_streams(&mut self) {
        for _ in 0..STREAMS {
            let Some(number) = self.streams.ready.pop_front() else {
                return;
            };
            if let Some(stream) = self.streams.get_mut(number) {
                stream.is_ready = false;
                if stream.is_handshaking() {
                    self.continue_handshake(number);
                } else {
                    self.serve_stream(number);
                }
            }
        }
    }

    fn serve_stream(&mut self, number: u64) {
        if self.move_bytes(number).is_err() {
            // The program is gone.
            self.reset_stream(number);
        }
    }

    fn move_bytes(&mut self, number: u64) -> Result<(), Errno> {
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        stream.flush()?;
        let established = matches!(stream.state, State::Established { .. });
        if !established {
            // A program that gives up before the guest answered.
            return if stream.has_hung_up {
                Err(Errno::PIPE)
            } else {
                Ok(())
            };
        }
        if stream.credit.is_update_due() {
            let update = stream.header(Operation::CreditUpdate, 0, 0);
            let guest = stream.guest;
            self.reply(guest, update);
        }
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        if stream.out.is_empty() && stream.guest_ended & SHUTDOWN_SEND != 0 {
            if stream.guest_ended == SHUTDOWN_BOTH {
                // 5.10.6.5: a reset confirms the end of both directions.
                return Err(Errno::PIPE);
            }
            if let Some(socket) = &stream.socket {
                // syscalls: shutdown
                shutdown(socket, Shutdown::Write)?;
            }
        }
        self.read_program(number)
    }

    /// Sends a guest what the program sent, or its end.
    fn read_program(&mut self, number: u64) -> Result<(), Errno> {
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        let guest = stream.guest;
        let ended = stream.told_ended & SHUTDOWN_SEND != 0;
        if ended && stream.has_hung_up && stream.told_ended != SHUTDOWN_BOTH {
            stream.told_ended = SHUTDOWN_BOTH;
            let end = stream.header(Operation::Shutdown, 0, SHUTDOWN_BOTH);
            self.reply(guest, end);
            return Ok(());
        }
        if ended || !stream.may_read || stream.guest_ended & SHUTDOWN_RECEIVE != 0 {
            return Ok(());
        }
        let waiting = self
            .guests
            .get(guest)
            .map_or(0, |guest| guest.replies.len());
        if waiting >= MAX_WAITING {
            if let Some(guest) = self.guests.get_mut(guest) {
                guest.streams_wait.push(number);
            }
            return Ok(());
        }
        let Some(stream) = self.streams.get_mut(number) else {
            return Ok(());
        };
        let Some(bytes) = stream.read()? else {
            return Ok(());
        };
        let count = u32::try_from(bytes.len()).unwrap_or(0);
        if count == 0 {
            let flags = match stream.has_hung_up {
                true => SHUTDOWN_BOTH,
                false => SHUTDOWN_SEND,
            };
            stream.told_ended |= flags;
            let end = stream.header(Operation::Shutdown, 0, flags);
            self.reply(guest, end);
            return Ok(());
        }
        stream.credit.sent(count);
        let header = stream.header(Operation::ReadWrite, count, 0);
        if let (Some(guest), Some(header)) = (self.guests.get_mut(guest), header) {
            guest.replies.push_back(Copied {
                header,
                payload: bytes,
                delivered: 0,
            });
            guest.may_receive = true;
        }
        // There may be more.
        self.streams.make_ready(number);
        Ok(())
    }

    /// Ends a stream, and resets its connection in the guest.
    pub(crate) fn reset_stream(&mut self, number: u64) {
        let Some(ends) = self.streams.get(number).and_then(Stream::ends) else {
            drop(self.streams.remove(number));
            return;
        };
        self.reset_at(ends, ends.other_than(HOST_CID).cid);
        self.connections.remove(ends);
        drop(self.streams.remove(number));
    }

    /// Ends the stream of a connection that has ended in the guest. Data that the program did not read yet goes to
    /// it, as far as its socket has room.
    pub(crate) fn close_stream(&mut self, ends: Ends) {
        if let Some(number) = self.streams.find(ends) {
            if let Some(mut stream) = self.streams.remove(number) {
                // The program may be gone, too.
                let _gone = stream.flush();
            }
        }
    }
}
