//! Frames of a packet socket on an interface (packet(7)), with `PACKET_VNET_HDR` and
//! `PACKET_AUXDATA`: behind a network header without its last field, and without their VLAN tags,
//! which the kernel takes off and tells of beside.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use vhost::net_header::{NEEDS_CSUM, NetHeader};

use crate::raw::packet;

/// Bytes of the header: `struct virtio_net_hdr`.
pub(crate) const HEADER: usize = 10;

/// Bytes of a VLAN tag, and where it is in a frame.
const TAG: usize = 4;
const ADDRESSES: usize = 12;

/// The tag's identifier where the kernel does not say: IEEE 802.1Q.
const TPID: u16 = 0x8100;

/// Receive one frame, with its tag. `Ok(None)` when there is none for now.
///
/// # Errors
/// The interface is gone.
pub(crate) fn receive<'b>(
    socket: BorrowedFd<'_>,
    buffer: &'b mut [u8],
) -> Result<Option<(NetHeader, &'b [u8])>, Errno> {
    let mut header = [0; NetHeader::SIZE];
    // Room for a tag before the frame.
    let room = buffer.get_mut(TAG..).ok_or(Errno::NOBUFS)?;
    let (header_bytes, _) = header.split_at_mut(HEADER);
    let (got, tag) = match packet::receive(socket, header_bytes, room) {
        Ok(got) => got,
        // One that is down may come up again, and is told of by this once.
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

/// The header of a frame that has got its tag back.
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
