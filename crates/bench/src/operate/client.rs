//! A minimal HTTP client for the control socket of a daemon.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use vm_harness::error::{Context, Error, Result};

/// Sends a request and returns the body of the response.
///
/// # Errors
/// No daemon listens, or it refuses the request.
pub(super) fn request(socket: &Path, method: &str, path: &str, body: &str) -> Result<String> {
    let asking = || format!("ask {} for {method} {path}", socket.display());
    let mut stream = UnixStream::connect(socket).context(asking)?;
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: vicinity\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).context(asking)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context(asking)?;
    read(&answer)
        .map(str::to_owned)
        .ok_or_else(|| Error::unreadable(&format!("the answer to {method} {path}"), &answer))
}

/// Returns the body of a successful response.
fn read(answer: &str) -> Option<&str> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then_some(body)
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
