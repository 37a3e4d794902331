//! An existing interface, with a virtio-net header before each frame (packet(7)).
//!
//! The switch neither receives the host's own frames on the interface, nor delivers frames to the host: as
//! with macvtap, host and VMs cannot reach each other by it. While the interface is open, it receives frames
//! for VMs' addresses (promiscuous mode). Its other settings stay unchanged.

use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, SocketFlags, SocketType, netdevice, socket_with, sockopt,
};

use super::error::{UplinkError, refused};

/// Bytes of the receive and the send buffer, if the system allows this size.
const BUFFER_BYTES: usize = 4 << 20;

/// Opens the interface `name`.
pub(super) fn open(name: &str) -> Result<OwnedFd, UplinkError> {
    let because = |step| refused(name, step);
    let (socket, index) = new(name)?;
    let on = 1_i32;
    for (option, step) in [
        (
            libc::PACKET_VNET_HDR,
            "add virtio-net headers to its frames",
        ),
        (libc::PACKET_AUXDATA, "report VLAN tags"),
        (
            libc::PACKET_IGNORE_OUTGOING,
            "exclude the host's own frames",
        ),
    ] {
        set(&socket, option, &on).map_err(because(step))?;
    }
    join(&socket, index).map_err(because("receive frames for VMs (promiscuous mode)"))?;
    // A smaller buffer is slower, but correct.
    let _wanted = sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES);
    let _wanted = sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES);
    bind(&socket, index).map_err(because("bind a socket to it"))?;
    Ok(socket)
}

/// Has the interface receive frames for VMs' addresses until the returned descriptor is closed.
/// Also returns the interface's number.
pub(super) fn set_promiscuous(name: &str) -> Result<(OwnedFd, u32), UplinkError> {
    let (socket, index) = new(name)?;
    join(&socket, index).map_err(refused(name, "receive frames for VMs (promiscuous mode)"))?;
    Ok((socket, index.unsigned_abs()))
}

/// Returns a socket that does not yet receive frames, and the interface's number.
fn new(name: &str) -> Result<(OwnedFd, i32), UplinkError> {
    let missing = || UplinkError::Missing {
        name: name.to_owned(),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    // `bind` sets the protocol. With a protocol, an unbound socket would receive the frames of
    // every interface.
    let none = None::<Protocol>;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, none);
    let socket = socket.map_err(refused(name, "open a packet socket"))?;
    let index = netdevice::name_to_index(&socket, name).map_err(|_| missing())?;
    let index = i32::try_from(index).map_err(|_| missing())?;
    Ok((socket, index))
}

fn join(socket: &OwnedFd, index: i32) -> Result<(), Errno> {
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        // The constant is small, so the conversion cannot fail.
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or_default(),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Sets an option of packet sockets.
fn set<T>(socket: &OwnedFd, option: i32, value: &T) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the pointer leads to a whole value of that length, which the kernel only reads, and
    // only during the call.
    let done = unsafe {
        let value = ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, option, value, length)
    };
    check_result(done)
}

/// Binds the socket, so that it receives all frames of an interface.
fn bind(socket: &OwnedFd, index: i32) -> Result<(), Errno> {
    let family = u16::try_from(libc::AF_PACKET).map_err(|_| Errno::INVAL)?;
    let all = u16::try_from(libc::ETH_P_ALL).map_err(|_| Errno::INVAL)?;
    let address = libc::sockaddr_ll {
        sll_family: family,
        sll_protocol: all.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = libc::socklen_t::try_from(size_of_val(&address)).map_err(|_| Errno::INVAL)?;
    // SAFETY: the pointer leads to a whole address of that length, which the kernel only reads.
    let done = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(&address).cast(), length) };
    check_result(done)
}

fn check_result(done: i32) -> Result<(), Errno> {
    if done == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::IO))
}
