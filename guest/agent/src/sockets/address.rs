//! AF_VSOCK ports that stand for TCP ports, as guest/sockets/layout.h defines them.

use std::io;

use socket2::{Domain, SockAddr, Socket, Type};

/// The port of every agent, and of the host's directory. Only root can bind it.
pub(super) const AGENT_PORT: u32 = 1014;

/// The first byte of such a port.
const PREFIX: u32 = 0x56;

/// `VMADDR_CID_ANY`.
const ANY: u32 = u32::MAX;

/// Returns the port that stands for a TCP port of the address with this index.
pub(super) fn port_of(index: u8, tcp: u16) -> u32 {
    (PREFIX << 24) | (u32::from(index) << 16) | u32::from(tcp)
}

/// Returns the index of the address, and the TCP port, for which a port stands.
pub(super) fn tcp_of(port: u32) -> Option<(u8, u16)> {
    let [prefix, index, high, low] = port.to_be_bytes();
    (u32::from(prefix) == PREFIX).then_some((index, u16::from_be_bytes([high, low])))
}

/// Returns a new socket.
pub(super) fn vsock() -> io::Result<Socket> {
    Socket::new(Domain::VSOCK, Type::STREAM, None)
}

/// Listens on a port, without waiting in `accept`.
pub(super) fn listen(port: u32) -> io::Result<Socket> {
    let socket = vsock()?;
    socket.bind(&SockAddr::vsock(ANY, port))?;
    socket.listen(128)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_the_numbers_of_the_library() {
        assert_eq!(port_of(2, 5432), 0x5602_1538);
        assert_eq!(tcp_of(0x5602_1538), Some((2, 5432)));
        assert_eq!(tcp_of(5432), None);
        assert_eq!(tcp_of(0x5702_1538), None);
    }
}
