//! Host programs that connect to a guest: `CONNECT port\n`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, accept_with, recv};

use crate::connection::{Ends, Verdict};
use crate::event_key::EventKey;
use crate::figures::increment;
use crate::header::{HOST_CID, Operation, SocketType};
use crate::limits::{HANDSHAKE_TIMEOUT, MAX_HANDSHAKES, MAX_HOST_STREAMS};
use crate::packet::{Address, Packet};
use crate::plane::Plane;
use crate::stream::{State, Stream};

/// Longest line, in bytes.
const LINE: usize = "CONNECT 4294967295\n".len();

/// Connections that are accepted in a row, before others are served.
const ACCEPTS: usize = 64;

/// What a program has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A whole line of so many bytes, with this port.
    Connect(u32, usize),
    /// The beginning of a line.
    Incomplete,
    /// Something else.
    Wrong,
}

/// Reads the line at the beginning of `bytes`, which are all that arrived.
pub(crate) fn line(bytes: &[u8]) -> Line {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return match bytes.len() < LINE {
            true => Line::Incomplete,
            false => Line::Wrong,
        };
    };
    let port = bytes
        .get(..end)
        .and_then(|line| line.strip_prefix(b"CONNECT "))
        .filter(|digits| digits.iter().all(u8::is_ascii_digit))
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    port.map_or(Line::Wrong, |port| Line::Connect(port, end + 1))
}

impl Plane {
    /// Accepts host programs' connections to a guest on this socket.
    ///
    /// # Errors
    /// The kernel refuses to watch it.
    pub fn listen(&mut self, guest: usize, listener: OwnedFd) -> Result<(), Errno> {
        let edge = EventFlags::IN | EventFlags::ET;
        // syscalls: epoll_ctl
        epoll::add(
            &self.poll,
            &listener,
            EventKey::Listener(guest).data(),
            edge,
        )?;
        if let Some(guest) = self.guests.get_mut(guest) {
            guest.listener = Some(listener);
            guest.may_accept = true;
        }
        Ok(())
    }

    /// Accepts connections to a guest.
    pub(crate) fn accept(&mut self, number: usize) {
        for _ in 0..ACCEPTS {
            let Some(guest) = self.guests.get_mut(number) else {
                return;
            };
            let Some(listener) = guest.listener.as_ref().filter(|_| guest.may_accept) else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            // syscalls: accept4
            let Ok(socket) = accept_with(listener, flags) else {
                // None waits, or the process has too many descriptors: the next connection is another event.
                guest.may_accept = false;
                return;
            };
            let (streams, handshakes) = self.streams.counts(number);
            if streams >= MAX_HOST_STREAMS || handshakes >= MAX_HANDSHAKES {
                // The program sees the end of its connection.
                continue;
            }
            let state = State::Handshake { since: self.now };
            let stream = self.streams.add(Stream::new(number, state, Some(socket)));
            if self.watch_stream(stream).is_err() {
                drop(self.streams.remove(stream));
                continue;
            }
            self.streams.make_ready(stream);
        }
    }

    /// Reads what a program has sent of its `CONNECT` line, and no byte behind the line.
    pub(crate) fn continue_handshake(&mut self, number: u64) {
        let Some(stream) = self.streams.get(number) else {
            return;
        };
        let Some(socket) = &stream.socket else {
            return;
        };
        let mut bytes = [0; LINE];
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        let seen = match recv(socket, &mut bytes[..], flags) {
            Ok((count, _)) if count > 0 => bytes.get(..count).unwrap_or_default(),
            Err(Errno::AGAIN | Errno::INTR) => return,
            _ => return self.reset_stream(number),
        };
        match line(seen) {
            Line::Incomplete => {}
            Line::Wrong => self.reset_stream(number),
            Line::Connect(port, length) => {
                let taken = bytes.get_mut(..length).unwrap_or_default();
                let took = recv(socket, taken, RecvFlags::DONTWAIT);
                if took != Ok((length, length)) || !self.request(number, port) {
                    self.reset_stream(number);
                }
            }
        }
    }

    /// Requests a connection to a guest's port for a program. Returns false if the guest has no driver.
    fn request(&mut self, number: u64, port: u32) -> bool {
        let guest = self
            .streams
            .get(number)
            .map_or(usize::MAX, |stream| stream.guest);
        if !self.is_receiving(guest) {
            return false;
        }
        let Some(cid) = self.guests.get(guest).map(|guest| guest.config.cid) else {
            return false;
        };
        let host_port = self.streams.host_port();
        let (host, guest_end) = (
            Address {
                cid: HOST_CID,
                port: host_port,
            },
            Address { cid, port },
        );
        let packet = Packet::control(Operation::Request, SocketType::Stream, host, guest_end);
        let ends = Ends::of(host, guest_end);
        if self.connections.judge(&packet, self.now, |_, _| true) != Verdict::Begin {
            return false;
        }
        self.streams.requested(number, ends, host_port);
        let header = self
            .streams
            .get_mut(number)
            .and_then(|stream| stream.header(Operation::Request, 0, 0));
        if let Some(guest) = self.guests.get_mut(guest) {
            increment(&mut guest.figures.begun);
        }
        self.reply(guest, header);
        // A program may hang up before the guest answers.
        self.streams.make_ready(number);
        true
    }

    /// Ends the connections of programs that have said nothing for too long.
    pub(crate) fn end_late_handshakes(&mut self) {
        while let Some((number, since)) = self.streams.oldest_handshake() {
            if self.now.saturating_duration_since(since) < HANDSHAKE_TIMEOUT {
                return;
            }
            drop(self.streams.remove(number));
        }
    }

    /// Returns the time until the next call of [`end_late_handshakes`](Self::end_late_handshakes).
    pub(crate) fn handshake_deadline(&self) -> Option<Duration> {
        let (_, since) = self.streams.oldest_handshake()?;
        Some((since + HANDSHAKE_TIMEOUT).saturating_duration_since(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_line_has_one_port_and_nothing_else() {
        assert_eq!(line(b"CONNECT 52\n"), Line::Connect(52, 11));
        assert_eq!(line(b"CONNECT 52\nGET /"), Line::Connect(52, 11));
        assert_eq!(line(b"CONNECT 4294967295\n"), Line::Connect(u32::MAX, LINE));
        for text in ["", "C", "CONNECT ", "CONNECT 429496729"] {
            assert_eq!(line(text.as_bytes()), Line::Incomplete, "{text}");
        }
        for text in [
            "\n",
            "CONNECT \n",
            "CONNECT -1\n",
            "CONNECT +1\n",
            "connect 1\n",
            "CONNECT 1 \n",
            "CONNECT  1\n",
            "CONNECT 4294967296\n",
            "CONNECT 00000000000",
            "GET / HTTP/1.1\r\nHost: x",
        ] {
            assert_eq!(line(text.as_bytes()), Line::Wrong, "{text}");
        }
    }
}
