//! A space: a VM writes files, and a client of the host fetches them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;
use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;

use crate::daemon::{Daemon, text};
use crate::guest::{Guest, require_clean_kernel, sh};
use crate::outcome::Outcome;
use crate::testbed::Testbed;

/// Lines of the file whose bytes are compared.
const LINES: u32 = 100_000;

/// Bytes of the file whose transmission is measured.
const LARGE: u32 = 8 << 20;

/// Longest time without a byte from the space.
const STALL_TIMEOUT: Duration = Duration::from_secs(20);

pub(super) fn publish(bed: &mut Testbed) -> Result<Outcome> {
    bed.ensure(&[Guest::Two])?;
    let (two, daemon) = (bed.vm(Guest::Two)?, bed.daemon()?);
    sh(
        two,
        "mkdir -p /s && (mountpoint -q /s || mount -t virtiofs space /s)",
    )?;
    sh(
        two,
        &format!("rm -rf /s/*; mkdir /s/d && seq {LINES} >/s/d/lines"),
    )?;
    let wanted: String = (1..=LINES).map(|line| format!("{line}\n")).collect();
    let (status, body) = fetch(daemon, "/d/lines")?;
    let mut outcome = Outcome::pass()
        .require(status == 200, || {
            format!("the client got status {status} for a file that is complete")
        })
        .require(body == wanted.as_bytes(), || {
            "the client got other bytes than the VM wrote".to_owned()
        });
    // A new name, because a client may still fetch the file of the old one.
    sh(two, "echo again >/s/d/new && mv /s/d/new /s/d/lines")?;
    let (_, body) = fetch(daemon, "/d/lines")?;
    outcome = outcome.require(body == b"again\n", || {
        "the client did not get the file that replaced the first one".to_owned()
    });
    let (status, _) = fetch(daemon, "/d/none")?;
    outcome = outcome.require(status == 404, || {
        format!("the client got status {status} for no file")
    });

    let begin = Instant::now();
    sh(
        two,
        &format!("head -c {LARGE} /dev/zero >/s/large && sync /s/large"),
    )?;
    let wrote = begin.elapsed();
    let begin = Instant::now();
    let (_, body) = fetch(daemon, "/large")?;
    let fetched = begin.elapsed();
    let megabytes = f64::from(LARGE) / 1e6;
    outcome = outcome
        .require(body.len() == LARGE as usize, || {
            format!("the client got {} of {LARGE} bytes", body.len())
        })
        .figure(
            "8 MiB, the VM writes",
            megabytes / wrote.as_secs_f64(),
            "MB/s",
        )
        .figure(
            "8 MiB, a client fetches",
            megabytes / fetched.as_secs_f64(),
            "MB/s",
        );
    sh(two, "rm -rf /s/*; umount /s")?;
    require_clean_kernel(outcome, two)
}

/// Fetches a path of the space as a client of the host; returns the status and the body.
fn fetch(daemon: &Daemon, path: &str) -> Result<(u16, Vec<u8>)> {
    let spaces = daemon.json(&["space", "list", "--json"])?;
    let listen = spaces
        .pointer("/0")
        .map(|space: &Value| text(space, "/listen"));
    let listen = listen.unwrap_or_default();
    let mut stream = TcpStream::connect(&listen).context(|| "connect to the space".to_owned())?;
    let slice = Some(Duration::from_millis(100));
    stream
        .set_read_timeout(slice)
        .context(|| "set a time limit".to_owned())?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: space\r\nConnection: close\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .context(|| "ask the space".to_owned())?;
    let answer = read(&mut stream)?;
    parse(&answer)
        .ok_or_else(|| Error::unreadable("the space's answer", &String::from_utf8_lossy(&answer)))
}

/// Reads until the space closes the connection.
fn read(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let (mut answer, mut part) = (Vec::new(), vec![0; 1 << 16]);
    let mut last = Instant::now();
    loop {
        interrupt::check()?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(length) => {
                answer.extend(part.iter().take(length));
                last = Instant::now();
            }
            Err(error)
                if error.kind() == std::io::ErrorKind::WouldBlock
                    && last.elapsed() < STALL_TIMEOUT => {}
            Err(error) => return Err(error).context(|| "read the space's answer".to_owned()),
        }
    }
}

/// Splits a response into its status and its body.
fn parse(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    const END: &[u8] = b"\r\n\r\n";
    let at = answer.windows(END.len()).position(|window| window == END)?;
    let (head, rest) = answer.split_at_checked(at)?;
    let head = std::str::from_utf8(head).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, rest.get(END.len()..)?.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_a_status_and_a_body() {
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(parse(answer), Some((200, b"abc".to_vec())));
        assert_eq!(parse(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
