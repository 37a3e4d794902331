//! Receives a packet with its auxiliary data (packet(7), `PACKET_AUXDATA`).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

/// Room for one control message, aligned like the message's header.
#[repr(C, align(8))]
struct ControlBuffer([u8; 64]);

/// Receives one packet, its first bytes into `header` and the rest into `frame`. Returns the number of bytes,
/// and the VLAN tag that the kernel has removed (protocol identifier, control information).
///
/// # Errors
/// The error of the system call.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    header: &mut [u8],
    frame: &mut [u8],
) -> Result<(usize, Option<(u16, u16)>), Errno> {
    let mut control = ControlBuffer([0; 64]);
    let piece = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut pieces = [piece(header), piece(frame)];
    // SAFETY: all fields are numbers and pointers, for which zero is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = ptr::from_mut(&mut control).cast();
    message.msg_controllen = size_of::<ControlBuffer>();
    // syscalls: recvmsg
    // SAFETY: every pointer points to memory of the given length that is borrowed for longer than the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let got = usize::try_from(got).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })?;
    Ok((got, tag(&message)))
}

/// Returns the VLAN tag from the control messages.
fn tag(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel has filled the control memory, and set its length to the filled part.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the macro returns null, or a whole header inside the control memory.
        let head = unsafe { ptr::read_unaligned(next) };
        let data = size_of::<libc::tpacket_auxdata>();
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
            && head.cmsg_len >= size_of::<libc::cmsghdr>() + data
        {
            // SAFETY: the message is long enough, as was just checked; any bytes are valid numbers.
            let auxdata = unsafe {
                ptr::read_unaligned(libc::CMSG_DATA(next).cast::<libc::tpacket_auxdata>())
            };
            let tagged = auxdata.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return tagged.then_some((auxdata.tp_vlan_tpid, auxdata.tp_vlan_tci));
        }
        // SAFETY: the kernel has filled both.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}
