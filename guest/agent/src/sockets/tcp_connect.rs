//! The TCP connection to a server of this VM, from the client's address.

use std::io;
use std::net::SocketAddrV4;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::routing::MARK;

/// Longest wait for the server's kernel; a client that does not block waits for 250 ms, other clients for three seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

/// Connects. The mark shows the preload library whose connection this is, and leads the server's packets back here.
pub(super) fn connect_as(client: SocketAddrV4, server: SocketAddrV4) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    socket.set_ip_transparent_v4(true)?;
    socket.set_mark(MARK)?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.bind(&client.into())?;
    socket.connect_timeout(&server.into(), CONNECT_TIMEOUT)?;
    Ok(socket)
}
