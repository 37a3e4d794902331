//! Asks the host for the directory.

use std::io::{self, Read};
use std::time::Duration;

use socket2::SockAddr;

use super::address::{AGENT_PORT, vsock};
use super::directory::{Directory, MAX_BYTES};

/// `VMADDR_CID_HOST`.
const HOST: u32 = 2;

/// Longest wait for a part of the answer. Linux gives up a connect after two seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the directory.
pub(super) fn read_directory() -> io::Result<Directory> {
    let socket = vsock()?;
    socket.set_read_timeout(Some(READ_TIMEOUT))?;
    socket.connect(&SockAddr::vsock(HOST, AGENT_PORT))?;
    let mut text = String::new();
    socket.take(MAX_BYTES).read_to_string(&mut text)?;
    Directory::read(&text).ok_or_else(|| {
        io::Error::other("its text has another version; use a vicinity-agent of the host's version")
    })
}
