//! Raw TCP: files one after the other.
//!
//! For each, a line `PUT LENGTH PATH`, the path as in a URL, and then so many bytes. The receiver answers
//! each file by a line: `OK` when it has the file, or what is wrong.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::error::PushError;
use crate::body::Part;
use crate::throttle::Throttled;

/// Longest line of a receiver, in bytes.
const MAX_LINE: u64 = 512;

/// Send a file and wait until the receiver has it.
pub(super) async fn send(
    stream: &mut BufReader<Throttled>,
    path: &str,
    length: u64,
    mut part: Part,
) -> Result<(), PushError> {
    let line = format!("PUT {length} {path}\n");
    stream.write_all(line.as_bytes()).await?;
    while let Some(bytes) = part.next()? {
        stream.write_all(&bytes).await?;
    }
    stream.flush().await?;
    let mut line = Vec::new();
    let mut limited = stream.take(MAX_LINE);
    limited.read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\n") {
        Some(b"OK" | b"OK\r") => Ok(()),
        Some(words) => Err(PushError::refused(words)),
        None => Err(PushError::Ended),
    }
}
