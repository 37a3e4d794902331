//! The TCP connection to a server of this VM, from the client's address.

use std::io;

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};

use super::claim::Pair;
use super::routing::MARK;

/// Begins to connect. The mark shows the preload library whose connection this is, and leads the server's packets back
/// here.
pub(super) fn begin(pair: Pair) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::IPV4, kind, Some(Protocol::TCP))?;
    socket.set_ip_transparent_v4(true)?;
    socket.set_mark(MARK)?;
    socket.set_reuse_address(true)?;
    socket.bind(&pair.0.into())?;
    is_done(&socket, pair)?;
    Ok(socket)
}

/// Returns whether the connection is there. Within one VM it usually is at once.
///
/// # Errors
/// The server's kernel refused it.
pub(super) fn is_done(socket: &Socket, pair: Pair) -> io::Result<bool> {
    let result = socket.connect(&pair.1.into());
    let error = result.as_ref().err().and_then(Errno::from_io_error);
    match error {
        Some(Errno::INPROGRESS | Errno::ALREADY) => Ok(false),
        Some(Errno::ISCONN) => Ok(true),
        _ => result.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::time::{Duration, Instant};

    use super::*;

    fn connect(port: u16) -> io::Result<Socket> {
        let from = TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(mut client) = from.local_addr().unwrap() else {
            panic!();
        };
        drop(from);
        client.set_ip([127, 0, 0, 7].into());
        let mut server = client;
        server.set_ip([127, 0, 0, 1].into());
        server.set_port(port);
        let kind = Type::STREAM.nonblocking();
        let socket = Socket::new(Domain::IPV4, kind, Some(Protocol::TCP))?;
        socket.bind(&client.into())?;
        let end = Instant::now() + Duration::from_secs(20);
        while !is_done(&socket, (client, server))? {
            assert!(Instant::now() < end);
            std::thread::yield_now();
        }
        Ok(socket)
    }

    #[test]
    fn a_connection_is_there_or_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = connect(port).unwrap();
        let (_, from) = listener.accept().unwrap();
        assert_eq!(socket.local_addr().unwrap().as_socket(), Some(from));
        drop(listener);
        assert_eq!(
            connect(port).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
    }
}
