//! A packet and what the kernel says beside it (packet(7), `PACKET_AUXDATA`).

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

/// Room for one control message; the kernel wants it aligned like the header of one.
#[repr(C, align(8))]
struct Beside([u8; 64]);

/// Receive one packet, its first bytes into `header` and the rest into `frame`; returns how many bytes
/// came, and the VLAN tag that the kernel has taken off (identifier, control information).
///
/// # Errors
/// What the socket says.
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    header: &mut [u8],
    frame: &mut [u8],
) -> Result<(usize, Option<(u16, u16)>), Errno> {
    let mut beside = Beside([0; 64]);
    let piece = |bytes: &mut [u8]| libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let mut pieces = [piece(header), piece(frame)];
    // SAFETY: all of its fields are numbers and pointers, of which zero is one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = ptr::from_mut(&mut beside).cast();
    message.msg_controllen = size_of::<Beside>();
    // syscalls: recvmsg
    // SAFETY: every pointer leads to memory of that length that is borrowed for longer than the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let got = usize::try_from(got).map_err(|_| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })?;
    Ok((got, tag(&message)))
}

/// The tag that control messages tell of.
fn tag(message: &libc::msghdr) -> Option<(u16, u16)> {
    // SAFETY: the kernel has filled control memory in, and set its length to what it filled.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: the macro returns null, or a whole header inside the control memory.
        let head = unsafe { ptr::read_unaligned(next) };
        let data = size_of::<libc::tpacket_auxdata>();
        if (head.cmsg_level, head.cmsg_type) == (libc::SOL_PACKET, libc::PACKET_AUXDATA)
            && head.cmsg_len >= size_of::<libc::cmsghdr>() + data
        {
            // SAFETY: the message is long enough, as was just seen; any bytes are such numbers.
            let beside = unsafe {
                ptr::read_unaligned(libc::CMSG_DATA(next).cast::<libc::tpacket_auxdata>())
            };
            let tagged = beside.tp_status & libc::TP_STATUS_VLAN_VALID != 0;
            return tagged.then_some((beside.tp_vlan_tpid, beside.tp_vlan_tci));
        }
        // SAFETY: both were filled in by the kernel.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
    None
}
