//! Receives frames from a packet socket on an interface (packet(7)), with `PACKET_VNET_HDR` and
//! `PACKET_AUXDATA`. The kernel puts a network header without its last field in front of each frame, and
//! moves the VLAN tag from the frame to the auxiliary data.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use vhost::net_header::{NEEDS_CSUM, NetHeader};

use crate::raw::packet;

/// Bytes of the header: `struct virtio_net_hdr`.
pub(crate) const HEADER: usize = 10;

/// Bytes of a VLAN tag, and its offset in a frame.
const TAG: usize = 4;
const ADDRESSES: usize = 12;

/// The tag's protocol identifier if the kernel gives none: IEEE 802.1Q.
const TPID: u16 = 0x8100;

/// Receives one frame, including its tag. Returns `Ok(None)` when there is none now.
///
/// # Errors
/// The interface is gone.
pub(crate) fn receive<'b>(
    socket: BorrowedFd<'_>,
    buffer: &'b mut [u8],
) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
    let mut header = [0; NetHeader::SIZE];
    // Leave room for a tag in front of the frame.
    let room = buffer.get_mut(TAG..).ok_or(Errno::NOBUFS)?;
    let (header_bytes, _) = header.split_at_mut(HEADER);
    let (got, tag) = match packet::receive(socket, header_bytes, room) {
        Ok(got) => got,
        // The socket reports once that the interface is down. It may come up again.
        Err(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = got.checked_sub(HEADER).ok_or(Errno::IO)?;
    let header = NetHeader::from_bytes(header);
    let Some((tpid, tci)) = tag.filter(|_| length >= ADDRESSES) else {
        let frame = buffer.get(TAG..TAG + length).ok_or(Errno::IO)?;
        return Ok(Some((header, frame)));
    };
    buffer.copy_within(TAG..TAG + ADDRESSES, 0);
    let tpid = if tpid == 0 { TPID } else { tpid };
    let [a, b] = tpid.to_be_bytes();
    let [c, d] = tci.to_be_bytes();
    if let Some(place) = buffer.get_mut(ADDRESSES..ADDRESSES + TAG) {
        place.copy_from_slice(&[a, b, c, d]);
    }
    let frame = buffer.get(..TAG + length).ok_or(Errno::IO)?;
    Ok(Some((shifted(header), frame)))
}

/// Returns the network header of a frame into which the tag was inserted.
fn shifted(header: NetHeader) -> NetHeader {
    match header.flags & NEEDS_CSUM {
        0 => header,
        _ => NetHeader {
            hdr_len: header.hdr_len.saturating_add(4),
            csum_start: header.csum_start.saturating_add(4),
            ..header
        },
    }
}
