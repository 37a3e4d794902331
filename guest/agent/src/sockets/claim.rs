//! The messages of servers that use the library: guest/sockets/claim.c.
//!
//! A server shows the TCP connection that it accepted, and gets the AF_VSOCK connection that it stands for. Only a
//! process with the accepted connection can claim it. Nothing here waits for a program.

use std::fs::{self, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recv, recvmsg, sendmsg,
};
use socket2::{SockAddr, Socket};

/// The socket of the claims.
const PATH: &str = "/run/vicinity-agent/claim.sock";

/// Messages: guest/sockets/layout.h.
const LISTENING: u8 = b'L';
const CLAIM: u8 = b'C';
const TAKE: u8 = b'V';
const TAKEN: u8 = b'A';

/// Client and server of a TCP connection.
pub(super) type Pair = (SocketAddrV4, SocketAddrV4);

/// What a program says first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Its socket listens on this TCP port.
    Listening(u16),
    /// It accepted this connection.
    Claim(Pair),
}

/// Opens the socket to which programs connect.
pub(super) fn listen() -> io::Result<UnixListener> {
    // An agent that was killed leaves the file.
    drop(fs::remove_file(PATH));
    let listener = UnixListener::bind(PATH)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(PATH, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Returns a program's message.
///
/// # Errors
/// `WouldBlock` if it has sent none yet. Otherwise it says nothing that means something.
pub(super) fn receive(program: &UnixStream) -> io::Result<Message> {
    let (what, socket) = take(program)?;
    let pair = || {
        let server = address(socket.local_addr())?;
        Some((address(socket.peer_addr())?, server))
    };
    let message = match what {
        LISTENING if socket.is_listener().unwrap_or(false) => {
            address(socket.local_addr()).map(|address| Message::Listening(address.port()))
        }
        CLAIM => pair().map(Message::Claim),
        _ => None,
    };
    message.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Passes the AF_VSOCK connection to a program.
///
/// # Errors
/// The program takes no message.
pub(super) fn give(program: &UnixStream, vsock: &Socket) -> io::Result<()> {
    send(program, TAKE, vsock)
}

/// Returns whether a program says that it has the connection; nothing if it has not said anything yet.
pub(super) fn has_taken(program: &UnixStream) -> Option<bool> {
    let mut said = [0];
    match recv(program, &mut said, RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => None,
        result => Some(result.is_ok_and(|(_, count)| count == 1) && said == [TAKEN]),
    }
}

/// Sends a message and a descriptor.
fn send(program: &UnixStream, what: u8, socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let (byte, flags) = ([what], SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    sendmsg(program, &[IoSlice::new(&byte)], &mut ancillary, flags)?;
    Ok(())
}

/// Receives a message and its socket.
fn take(program: &UnixStream) -> io::Result<(u8, Socket)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    recvmsg(
        program,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor: OwnedFd = descriptor.ok_or(io::ErrorKind::InvalidData)?;
    Ok((byte.first().copied().unwrap_or(0), descriptor.into()))
}

/// Returns an IPv4 address, also of an IPv6 socket.
fn address(of: io::Result<SockAddr>) -> Option<SocketAddrV4> {
    match of.ok()?.as_socket()? {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(address) => {
            let port = address.port();
            match address.ip().to_canonical() {
                IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, port)),
                // A listener of any address.
                IpAddr::V6(ip) if ip.is_unspecified() => {
                    Some(SocketAddrV4::new([0; 4].into(), port))
                }
                IpAddr::V6(_) => None,
            }
        }
    }
}

/// What a program does, for the tests of connections.
#[cfg(test)]
pub(super) mod program {
    use super::*;

    /// Returns the connection that the agent passes.
    pub(crate) fn takes(program: &UnixStream) -> Socket {
        let (what, socket) = take(program).unwrap();
        assert_eq!(what, TAKE);
        io::Write::write_all(&mut &*program, &[TAKEN]).unwrap();
        socket
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn messages_are_about_the_sockets_that_come_with_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let v4 = |socket: &TcpStream| address(Ok(socket.local_addr().unwrap().into())).unwrap();
        let say = |what, socket: &dyn AsFd| {
            let (program, mine) = UnixStream::pair().unwrap();
            send(&program, what, socket.as_fd()).unwrap();
            receive(&mine).ok()
        };
        let port = listener.local_addr().unwrap().port();
        assert_eq!(
            say(LISTENING, &listener),
            Some(Message::Listening(port)),
            "it listens"
        );
        let pair = (v4(&client), v4(&accepted));
        assert_eq!(say(CLAIM, &accepted), Some(Message::Claim(pair)));
        assert_eq!(say(LISTENING, &accepted), None, "it does not listen");
        assert_eq!(say(CLAIM, &listener), None, "it is not connected");
        assert_eq!(say(CLAIM, &UnixStream::pair().unwrap().0), None);
        assert_eq!(say(b'?', &accepted), None);
    }

    #[test]
    fn nothing_waits_for_a_program() {
        let (program, mine) = UnixStream::pair().unwrap();
        let silent = receive(&mine).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(has_taken(&mine), None);
        drop(program);
        assert!(receive(&mine).is_err());
        assert_eq!(has_taken(&mine), Some(false));
        let (mut program, mine) = UnixStream::pair().unwrap();
        io::Write::write_all(&mut program, &[CLAIM]).unwrap();
        assert_eq!(
            receive(&mine).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
