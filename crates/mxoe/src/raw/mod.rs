//! The crate's only `unsafe` code: the parts of packet sockets for which rustix has no types. These
//! are their address, further unicast addresses, filters, batches of frames, and the receive ring.
#![allow(unsafe_code)]

pub(crate) mod batch;
pub(crate) mod ring;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// `struct sockaddr_ll` of packet(7), for a protocol on an interface.
#[repr(C)]
pub(crate) struct LinkAddress {
    family: u16,
    /// Big endian.
    protocol: u16,
    interface: i32,
    hardware: u16,
    kind: u8,
    length: u8,
    address: [u8; 8],
}

/// `AF_PACKET`.
const FAMILY: u16 = 17;

impl LinkAddress {
    pub(crate) fn new(protocol: u16, interface: i32) -> Self {
        Self {
            family: FAMILY,
            protocol: protocol.to_be(),
            interface,
            hardware: 0,
            kind: 0,
            length: 0,
            address: [0; 8],
        }
    }
}

// SAFETY: the pointer points to a whole `sockaddr_ll` of this length for as long as `f` runs.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = SocketAddrLen::try_from(size_of::<Self>()).unwrap_or_default();
        f(ptr::from_ref(self).cast(), length)
    }
}

/// Makes the interface accept frames for another address and pass them to this socket (packet(7)).
pub(crate) fn add_address(socket: &OwnedFd, interface: i32, address: [u8; 6]) -> io::Result<()> {
    let [a, b, c, d, e, f] = address;
    let kind = libc::c_ushort::try_from(libc::PACKET_MR_UNICAST).map_err(io::Error::other)?;
    let request = libc::packet_mreq {
        mr_ifindex: interface,
        mr_type: kind,
        mr_alen: 6,
        mr_address: [a, b, c, d, e, f, 0, 0],
    };
    set_option(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Attaches a filter to a socket in place of the last one (packet(7), socket(7)). The kernel checks the program, and replaces it
/// between two frames.
pub(crate) fn attach_filter(socket: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: libc::c_ushort::try_from(program.len()).map_err(io::Error::other)?,
        // The kernel only reads through this pointer.
        filter: program.as_ptr().cast_mut(),
    };
    let length = libc::socklen_t::try_from(size_of::<libc::sock_fprog>());
    // SAFETY: the pointer points to a whole `sock_fprog`, and that points to a program of its length. The kernel copies both
    // during the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            ptr::from_ref(&program).cast(),
            length.map_err(io::Error::other)?,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns how many frames the socket dropped since the last call because its ring was full.
pub(crate) fn lost(socket: &OwnedFd) -> io::Result<u32> {
    let mut found = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let length = size_of::<libc::tpacket_stats>();
    let mut length = libc::socklen_t::try_from(length).map_err(io::Error::other)?;
    // SAFETY: the pointers point to a whole `tpacket_stats` and to its length. The kernel writes no
    // more than that, and only during the call.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            ptr::from_mut(&mut found).cast(),
            ptr::from_mut(&mut length),
        )
    };
    match done {
        0 => Ok(found.tp_drops),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets an option of a packet socket. The value is one of the kernel's structures without pointers.
fn set_option<T: Copy>(socket: &OwnedFd, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(io::Error::other)?;
    // SAFETY: the pointer points to a whole value of this length, which the kernel only reads, and
    // only during the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            name,
            ptr::from_ref(value).cast(),
            length,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
