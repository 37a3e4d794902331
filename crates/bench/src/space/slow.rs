//! The cost of slow clients, which read little of the response.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::report::SlowSample;
use super::server::Server;
use crate::memory::own_kib;
use crate::parse::number_after;
use vm_harness::error::{Context, Error, Result};
use vm_harness::interrupt;

/// Clients at once.
pub(super) const CLIENTS: u32 = 1000;

/// Bytes that a client reads at a time, and how often it reads.
const READ_BYTES: usize = 1024;
const READS: u32 = 5;

/// Time between two reads of a client.
const READ_INTERVAL: Duration = Duration::from_millis(200);

/// Longest time until a server that is busy with other clients answers.
const LIMIT: Duration = Duration::from_secs(20);

/// KiB of a page.
const PAGE: u64 = 4;

/// Connects the clients, which request the file of this length and read some of it.
pub(super) fn measure(server: &Server, round: u32, length: u32) -> Result<SlowSample> {
    // The clients of an earlier measurement have disconnected.
    interrupt::sleep(READ_INTERVAL)?;
    let (before, kernel_before) = (own(server)?, kernel()?);
    let clients: Result<Vec<TcpStream>> =
        (0..CLIENTS).map(|_| request(server.at, length)).collect();
    let mut clients = clients?;
    for _ in 0..READS {
        interrupt::sleep(READ_INTERVAL)?;
        for client in &mut clients {
            let taken = client.read(&mut [0; READ_BYTES]);
            if taken.context(|| format!("read as a slow client of {}", server.kind))? == 0 {
                let kind = server.kind;
                return Err(Error::Host(format!("{kind} left a slow client alone")));
            }
        }
    }
    Ok(SlowSample {
        round,
        server: server.kind,
        clients: CLIENTS,
        before_kib: before,
        with_kib: own(server)?,
        kernel_kib: kernel()?.saturating_sub(kernel_before),
    })
}

fn request(at: SocketAddr, length: u32) -> Result<TcpStream> {
    let connect = || -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(at)?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "GET /{length} HTTP/1.1\r\nHost: {at}\r\n\r\n")?;
        Ok(stream)
    };
    connect().context(|| format!("ask {at} as a slow client"))
}

/// Returns the KiB of the processes that serve the clients, without the files.
fn own(server: &Server) -> Result<u64> {
    server.workers().into_iter().map(own_kib).sum()
}

/// Returns the KiB that the kernel has allocated for TCP on this machine.
fn kernel() -> Result<u64> {
    const FILE: &str = "/proc/net/sockstat";
    let text = fs::read_to_string(FILE).context(|| format!("read {FILE}"))?;
    pages(&text)
        .map(|pages| pages * PAGE)
        .ok_or_else(|| Error::unreadable(FILE, &text))
}

fn pages(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("TCP:"))?;
    number_after(line, " mem ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_are_those_of_tcp() {
        let text =
            "sockets: used 9\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 12\nUDP: inuse 0 mem 3\n";
        assert_eq!(pages(text), Some(12));
        assert!(kernel().is_ok());
    }
}
