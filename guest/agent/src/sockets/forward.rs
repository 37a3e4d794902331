//! Copies the data of a server that does not use the library, without waiting.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use rustix::event::epoll::EventFlags;
use socket2::Socket;

/// Most bytes that one event copies in one direction.
const BUFFER: usize = 64 << 10;

/// Both directions of a connection.
#[derive(Debug, Default)]
pub(super) struct Forward {
    to_tcp: Direction,
    to_vsock: Direction,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// What was read, and could not be written yet, from `written` on.
    rest: Vec<u8>,
    written: usize,
    /// The sender has ended this direction.
    is_ended: bool,
}

impl Forward {
    /// Copies what can be copied now. Returns whether both directions have ended.
    ///
    /// # Errors
    /// One of the connections failed, so both must end.
    pub(super) fn step(&mut self, vsock: &Socket, tcp: &Socket) -> io::Result<bool> {
        self.to_tcp.step(vsock, tcp)?;
        self.to_vsock.step(tcp, vsock)?;
        Ok(self.to_tcp.is_done() && self.to_vsock.is_done())
    }

    /// Returns the events for which the AF_VSOCK and the TCP socket wait.
    pub(super) fn interest(&self) -> [EventFlags; 2] {
        let of = |reads: &Direction, writes: &Direction| {
            let mut flags = EventFlags::empty();
            flags.set(EventFlags::IN, reads.may_read());
            flags.set(EventFlags::OUT, !writes.rest.is_empty());
            flags
        };
        [
            of(&self.to_tcp, &self.to_vsock),
            of(&self.to_vsock, &self.to_tcp),
        ]
    }
}

impl Direction {
    fn may_read(&self) -> bool {
        self.rest.is_empty() && !self.is_ended
    }

    fn is_done(&self) -> bool {
        self.rest.is_empty() && self.is_ended
    }

    fn step(&mut self, from: &Socket, to: &Socket) -> io::Result<()> {
        self.write(to)?;
        if !self.may_read() {
            return Ok(());
        }
        self.rest.resize(BUFFER, 0);
        let count = ready((&mut &*from).read(&mut self.rest));
        self.rest
            .truncate(count.as_ref().ok().copied().flatten().unwrap_or(0));
        match count? {
            None => {}
            Some(0) => {
                self.is_ended = true;
                to.shutdown(Shutdown::Write)?;
            }
            Some(_) => self.write(to)?,
        }
        if self.rest.is_empty() {
            // A connection that is idle needs no memory.
            self.rest = Vec::new();
        }
        Ok(())
    }

    fn write(&mut self, mut to: &Socket) -> io::Result<()> {
        while let Some(rest) = self
            .rest
            .get(self.written..)
            .filter(|rest| !rest.is_empty())
        {
            match ready(to.write(rest))? {
                None => return Ok(()),
                Some(count) => self.written += count,
            }
        }
        self.rest.clear();
        self.written = 0;
        Ok(())
    }
}

/// Returns `None` if a call must wait.
fn ready(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use socket2::{Domain, Type};

    use super::*;

    /// Returns an end that waits, and one that does not.
    fn pair() -> (Socket, Socket) {
        let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None).unwrap();
        other.set_nonblocking(true).unwrap();
        (one, other)
    }

    fn forward(vsock: &Socket, tcp: &Socket) -> io::Result<()> {
        let mut forward = Forward::default();
        while !forward.step(vsock, tcp)? {
            thread::yield_now();
        }
        Ok(())
    }

    #[test]
    fn data_and_ends_go_both_ways() {
        let (mut client, vsock) = pair();
        let (tcp_end, tcp) = pair();
        let mut server = tcp_end;
        let thread = thread::spawn(move || forward(&vsock, &tcp));
        let sent: Vec<u8> = (0..=250u8).cycle().take(1_000_000).collect();
        let (from, copy) = (client.try_clone().unwrap(), sent.clone());
        let writer = thread::spawn(move || {
            (&from).write_all(&copy).unwrap();
            from.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        server.read_to_end(&mut got).unwrap();
        assert!(got == sent);
        // The other way is still open.
        server.write_all(b"bye").unwrap();
        drop(server);
        got.clear();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"bye");
        writer.join().unwrap();
        thread.join().unwrap().unwrap();
    }

    #[test]
    fn a_socket_waits_only_for_what_helps() {
        let (client, vsock) = pair();
        let (server, tcp) = pair();
        let (both, none) = ([EventFlags::IN; 2], EventFlags::empty());
        let mut forward = Forward::default();
        assert_eq!(forward.interest(), both);
        (&client).write_all(&[7; 1000]).unwrap();
        assert!(!forward.step(&vsock, &tcp).unwrap());
        assert_eq!(forward.interest(), both);
        assert_eq!(
            forward.to_tcp.rest.capacity(),
            0,
            "an idle connection has memory"
        );
        // The server reads nothing.
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        for _ in 0..1000 {
            sent += (&client).write(&[7; 10_000]).unwrap_or(0);
            assert!(!forward.step(&vsock, &tcp).unwrap());
        }
        let [to_vsock, to_tcp] = forward.interest();
        assert_eq!((to_vsock, to_tcp), (none, EventFlags::IN | EventFlags::OUT));
        assert!(
            sent < 1000 * 10_000,
            "the agent keeps what the server does not read"
        );
        drop(server);
        assert!(
            forward.step(&vsock, &tcp).is_err(),
            "the server's end is passed on"
        );
    }
}
