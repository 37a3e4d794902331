//! As little of HTTP as it takes to ask a daemon.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;

use rustix::process::setpriority_process;

use crate::error::{Context, Error, Result};

/// Ask, and wait for the answer's body.
///
/// # Errors
/// There is no daemon, or it refuses.
pub(super) fn ask(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = send(socket, method, path, body)?;
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .context(|| format!("read the answer to {method} {path}"))?;
    read(&answer)
        .map(str::to_owned)
        .ok_or_else(|| Error::unreadable(&format!("the answer to {method} {path}"), &answer))
}

fn send(socket: &Path, method: &str, path: &str, body: &str) -> Result<UnixStream> {
    let asking = || format!("ask {} for {path}", socket.display());
    let mut stream = UnixStream::connect(socket).context(asking)?;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: vicinity\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).context(asking)?;
    Ok(stream)
}

/// The body of an answer that is none of refusal.
fn read(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then_some(body)
}

/// A body that is read as it comes, and thrown away.
pub(super) struct Discard {
    stream: UnixStream,
    reader: JoinHandle<std::io::Result<u64>>,
}

/// Ask for a body without end.
///
/// # Errors
/// There is no daemon, or it refuses.
pub(super) fn discard(socket: &Path, path: &str) -> Result<Discard> {
    let stream = send(socket, "GET", path, "")?;
    let reading = || format!("read the answer to {path}");
    let mut theirs = stream.try_clone().context(reading)?;
    let mut status = [0; 13];
    theirs.read_exact(&mut status).context(reading)?;
    if !status.ends_with(b" 200 ") {
        let status = String::from_utf8_lossy(&status);
        return Err(Error::unreadable(&format!("the answer to {path}"), &status));
    }
    let reader = std::thread::spawn(move || {
        // As `vicinity capture` does.
        setpriority_process(None, 19)?;
        std::io::copy(&mut theirs, &mut std::io::sink())
    });
    Ok(Discard { stream, reader })
}

impl Discard {
    /// Enough of it.
    ///
    /// # Errors
    /// Nothing more came than its head.
    pub(super) fn end(self) -> Result<()> {
        let ended = || "end a capture".to_owned();
        self.stream.shutdown(Shutdown::Both).context(ended)?;
        match self.reader.join() {
            Ok(Ok(0)) | Err(_) => Err(Error::Host("the capture saw nothing".to_owned())),
            Ok(read) => read.map(drop).context(ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_body_and_a_refusal_has_none() {
        assert_eq!(read("HTTP/1.1 200 OK\r\na: b\r\n\r\n[1]"), Some("[1]"));
        assert_eq!(read("HTTP/1.1 422 No\r\n\r\n{}"), None);
        assert_eq!(read("HTTP/1.1 200 OK\r\n"), None);
    }
}
