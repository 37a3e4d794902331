//! Raw TCP: sends files one after the other.
//!
//! For each file, the space sends a line `PUT LENGTH PATH` with the path as in a URL, and then LENGTH bytes. The receiver
//! answers each file with a line: `OK` when it has stored the file, or an error message.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::error::PushError;
use crate::body::ObjectReader;
use crate::throttle::Throttled;

/// Longest response line of a receiver, in bytes.
const MAX_LINE: u64 = 512;

/// Sends a file and waits for the receiver's acknowledgement.
pub(super) async fn send(
    stream: &mut BufReader<Throttled>,
    path: &str,
    length: u64,
    mut reader: ObjectReader,
) -> Result<(), PushError> {
    let line = format!("PUT {length} {path}\n");
    stream.write_all(line.as_bytes()).await?;
    while let Some(bytes) = reader.next()? {
        stream.write_all(&bytes).await?;
    }
    stream.flush().await?;
    let mut line = Vec::new();
    let mut limited = stream.take(MAX_LINE);
    limited.read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\n") {
        Some(b"OK" | b"OK\r") => Ok(()),
        Some(reason) => Err(PushError::refused(reason)),
        None => Err(PushError::Ended),
    }
}
