//! One JSON message a line over a UNIX socket: the protocol of QEMU's monitor and of the guest agent.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::error::{Context, Error, Result};
use crate::interrupt;

/// Longest time that one read waits before the caller checks for a signal.
const SLICE: Duration = Duration::from_millis(50);

/// Longest line accepted, in bytes. A response of the agent contains the whole output of a command.
const MAX_LINE: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct JsonLine {
    socket: UnixStream,
    pending: Vec<u8>,
    peer: String,
}

impl JsonLine {
    /// Connects to a socket that another process opens soon.
    pub(super) fn connect(path: &Path, peer: &str) -> io::Result<Self> {
        let socket = UnixStream::connect(path)?;
        socket.set_read_timeout(Some(SLICE))?;
        Ok(Self {
            socket,
            pending: Vec::new(),
            peer: peer.to_owned(),
        })
    }

    pub(super) fn send(&mut self, message: &Value) -> Result<()> {
        let line = format!("{message}\n");
        let sent = self.socket.write_all(line.as_bytes());
        sent.context(|| format!("talk to {}", self.peer))
    }

    /// Receives the next message; `None` if no message arrives within `limit`.
    pub(super) fn receive(&mut self, limit: Duration) -> Result<Option<Value>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(line) = self.line() {
                let text = String::from_utf8_lossy(&line);
                let value = serde_json::from_str(&text);
                return value
                    .map(Some)
                    .map_err(|_| Error::unreadable(&self.peer, &text));
            }
            interrupt::check()?;
            if Instant::now() >= end {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.pending.iter().position(|byte| *byte == b'\n')?;
        let mut line: Vec<u8> = self.pending.drain(..=end).collect();
        // The agent starts its response to `guest-sync-delimited` with this byte.
        line.retain(|byte| *byte != 0xff);
        Some(line)
    }

    fn fill(&mut self) -> Result<()> {
        let what = || format!("listen to {}", self.peer);
        let mut chunk = [0; 16384];
        match self.socket.read(&mut chunk) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::UnexpectedEof)).context(what),
            Ok(_) if self.pending.len() > MAX_LINE => Err(Error::unreadable(&self.peer, "…")),
            Ok(got) => {
                self.pending.extend(chunk.iter().take(got));
                Ok(())
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(())
            }
            Err(e) => Err(e).context(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, JsonLine) {
        let (theirs, socket) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(SLICE)).unwrap();
        let pending = Vec::new();
        let peer = "the peer".to_owned();
        (
            theirs,
            JsonLine {
                socket,
                pending,
                peer,
            },
        )
    }

    #[test]
    fn messages_are_cut_at_line_ends() {
        let (mut theirs, mut ours) = pair();
        theirs.write_all(b"\xff{\"a\":1}\r\n{\"b\"").unwrap();
        let limit = Duration::from_millis(200);
        assert_eq!(ours.receive(limit).unwrap().unwrap()["a"], 1);
        assert!(ours.receive(Duration::ZERO).unwrap().is_none());
        theirs.write_all(b":2}\n").unwrap();
        assert_eq!(ours.receive(limit).unwrap().unwrap()["b"], 2);
    }

    #[test]
    fn a_closed_peer_is_an_error_not_a_wait() {
        let (theirs, mut ours) = pair();
        drop(theirs);
        assert!(ours.receive(Duration::from_secs(60)).is_err());
    }
}
