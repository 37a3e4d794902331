//! The crate's only `unsafe` code: the address of a packet socket, which rustix has no type for.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::ptr;

use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

/// `struct sockaddr_ll` of packet(7), of a protocol on an interface.
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

// SAFETY: the pointer leads to a whole `sockaddr_ll`, with its length, for as long as `f` runs.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let length = SocketAddrLen::try_from(size_of::<Self>()).unwrap_or_default();
        f(ptr::from_ref(self).cast(), length)
    }
}
