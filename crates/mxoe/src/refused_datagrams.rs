//! The addresses at which no program takes the datagrams of a socket any more, as the hosts there say: ICMP's *port unreachable* (RFC 1122,
//! section 4.1.3.1; RFC 4443, section 3.1). The kernel passes the messages that are about datagrams of the socket, in a queue of
//! errors (ip(7), `IP_RECVERR`).

use std::io::IoSliceMut;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

/// Errors that one call reads, at most.
const MOST: usize = 64;

/// Makes the kernel keep the errors of a socket.
pub(crate) fn keep_errors(socket: &OwnedFd, address: SocketAddr) -> Result<(), Errno> {
    match address {
        SocketAddr::V4(_) => setsockopt(socket, sockopt::Ipv4RecvErr, &true),
        SocketAddr::V6(_) => setsockopt(socket, sockopt::Ipv6RecvErr, &true),
    }
}

/// Takes the errors of a socket that the kernel has kept, and returns the destinations of datagrams that were refused.
pub(crate) fn take(
    socket: &OwnedFd,
    address: impl Fn(&SockaddrStorage) -> Option<SocketAddr>,
) -> Vec<SocketAddr> {
    let mut refused = Vec::new();
    for _ in 0..MOST {
        // The refused datagram itself is of no use.
        let mut parts: [IoSliceMut<'_>; 0] = [];
        let mut control = nix::cmsg_space!(libc::sock_extended_err, libc::sockaddr_in6);
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_raw_fd();
        let Ok(found) = recvmsg::<SockaddrStorage>(fd, &mut parts, Some(&mut control), flags)
        else {
            break;
        };
        let is_refused = found.cmsgs().is_ok_and(|mut messages| {
            messages.any(|message| match message {
                ControlMessageOwned::Ipv4RecvErr(error, _)
                | ControlMessageOwned::Ipv6RecvErr(error, _) => is_refusal(&error),
                _ => false,
            })
        });
        if is_refused {
            refused.extend(found.address.as_ref().and_then(&address));
        }
    }
    refused
}

/// Whether a host has refused a datagram. The kernel reports errors of this host in the same way.
fn is_refusal(error: &libc::sock_extended_err) -> bool {
    let is_from_host =
        [libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6].contains(&error.ee_origin);
    is_from_host && error.ee_errno == Errno::ECONNREFUSED as u32
}
