//! Segments a GSO frame (virtio 1.2, 5.1.6.2; RFC 9293; RFC 768).

use super::checksum::{Sum, never_zero};
use super::layout::{Layout, Transport};
use super::wire::{TCP_CHECKSUM, UDP_CHECKSUM, put, u8_at, u16_at, u32_at};
use super::{Offload, Untranslatable};

/// Smallest `gso_size`, in bytes, of a frame that becomes more than one segment.
///
/// Every segment costs its headers, one receive buffer and a fixed amount of work, which the sender does
/// not pay for: a `gso_size` of 1 would turn one frame into 65,000 packets. Linux uses 88 as the smallest
/// segment size of a path; TCP options may use up to 40 bytes of it, so no well-behaved TCP goes below 48.
/// With this limit a frame becomes 1,366 segments at most, and with ordinary headers the bytes written are
/// at most about 2.5 times those of the frame.
pub const MIN_GSO_SIZE: usize = 48;

/// TCP flags (RFC 9293, 3.1).
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Segments one GSO frame. Segments are independent of each other and can be written in any order, any
/// number of times.
#[derive(Clone, Copy, Debug)]
pub struct Segmenter<'a> {
    frame: &'a [u8],
    layout: Layout,
    size: usize,
    count: usize,
    full_checksum: bool,
}

/// A segment that [`Segmenter::write`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Bytes written, headers and payload. Never more than the frame has.
    pub len: usize,
    /// The content of the segment's network header.
    pub offload: Offload,
}

impl<'a> Segmenter<'a> {
    /// Checks a frame and prepares its segmentation. `full_checksum` is that of
    /// [`Plan::Segment`](super::Plan::Segment): whether segments get a full TCP or UDP checksum or a
    /// partial one.
    ///
    /// # Errors
    /// Why the frame cannot be segmented.
    pub fn new(
        frame: &'a [u8],
        offload: &Offload,
        full_checksum: bool,
    ) -> Result<Self, Untranslatable> {
        let layout = Layout::of(frame, offload.gso)?;
        if offload.needs_csum {
            let start = usize::from(offload.csum_start);
            let offset = usize::from(offload.csum_offset);
            // Another place means that another header is meant, for example one inside a tunnel.
            if start != layout.transport || offset != checksum_offset(layout.protocol) {
                return Err(Untranslatable::ChecksumPlace);
            }
        }
        let size = usize::from(offload.gso_size);
        let payload = layout.end - layout.payload;
        if size == 0 {
            return Err(Untranslatable::NoGsoSize);
        }
        let count = payload.div_ceil(size).max(1);
        if count > 1 && size < MIN_GSO_SIZE {
            return Err(Untranslatable::SmallGsoSize);
        }
        Ok(Self {
            frame,
            layout,
            size,
            count,
            full_checksum,
        })
    }

    /// Returns the number of segments: at least one, which may have no payload.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Writes segment `index`, counted from 0, to the start of `out`. A buffer of the frame's length always
    /// suffices. Returns `None` when there is no such segment or `out` is too short.
    pub fn write(&self, index: usize, out: &mut [u8]) -> Option<Segment> {
        if index >= self.count {
            return None;
        }
        let layout = &self.layout;
        let first = layout.payload + index * self.size;
        let payload = self.frame.get(first..layout.end.min(first + self.size))?;
        let len = layout.payload + payload.len();
        let out = out.get_mut(..len)?;
        let (headers, body) = out.split_at_mut_checked(layout.payload)?;
        headers.copy_from_slice(self.frame.get(..layout.payload)?);
        body.copy_from_slice(payload);

        let packet = out.get_mut(layout.ip..)?;
        let (ip, segment) = packet.split_at_mut_checked(layout.transport - layout.ip)?;
        let length = u16::try_from(segment.len()).ok()?;
        let pseudo = if layout.ipv4 {
            finish_ipv4(ip, length, index)?
        } else {
            finish_ipv6(ip, length)?
        };
        let pseudo = pseudo
            .word(u16::from(layout.protocol.number()))
            .word(length);
        match layout.protocol {
            Transport::Tcp => self.finish_tcp(segment, index)?,
            Transport::Udp => put(segment, 4, length.to_be_bytes())?,
        }
        self.finish_checksum(segment, pseudo)?;
        Some(Segment {
            len,
            offload: self.header(),
        })
    }

    /// Returns the content of the network header of every segment.
    fn header(&self) -> Offload {
        if self.full_checksum {
            return Offload::default();
        }
        let at = |value| u16::try_from(value).unwrap_or_default();
        Offload {
            needs_csum: true,
            csum_start: at(self.layout.transport),
            csum_offset: at(checksum_offset(self.layout.protocol)),
            ..Offload::default()
        }
    }

    /// Writes the sequence number and flags of segment `index`. FIN and PSH belong to the last segment, CWR
    /// to the first (RFC 3168, 6.1.2).
    fn finish_tcp(&self, segment: &mut [u8], index: usize) -> Option<()> {
        let advance = u32::try_from(index * self.size).ok()?;
        let sequence = u32_at(segment, 4)?.wrapping_add(advance);
        put(segment, 4, sequence.to_be_bytes())?;
        let mut flags = u8_at(segment, 13)?;
        if index > 0 {
            flags &= !CWR;
        }
        if index + 1 < self.count {
            flags &= !(FIN | PSH);
        }
        put(segment, 13, [flags])
    }

    /// Writes the transport checksum: partial (the sum of the pseudo header) or complete.
    fn finish_checksum(&self, segment: &mut [u8], pseudo: Sum) -> Option<()> {
        let at = checksum_offset(self.layout.protocol);
        if !self.full_checksum {
            return put(segment, at, pseudo.folded());
        }
        put(segment, at, [0, 0])?;
        let checksum = pseudo.bytes(segment).complement();
        match self.layout.protocol {
            Transport::Tcp => put(segment, at, checksum),
            Transport::Udp => put(segment, at, never_zero(checksum)),
        }
    }
}

fn checksum_offset(protocol: Transport) -> usize {
    match protocol {
        Transport::Tcp => TCP_CHECKSUM,
        Transport::Udp => UDP_CHECKSUM,
    }
}

/// Writes length, identification and checksum of an IPv4 header for `length` bytes of transport.
/// Identifications count up from that of the frame, so that fragments of different segments can be
/// distinguished (RFC 6864, 4.3). Returns the sum of the addresses.
fn finish_ipv4(ip: &mut [u8], length: u16, index: usize) -> Option<Sum> {
    let total = u16::try_from(ip.len()).ok()?.checked_add(length)?;
    put(ip, 2, total.to_be_bytes())?;
    let id = u16_at(ip, 4)?.wrapping_add(u16::try_from(index).ok()?);
    put(ip, 4, id.to_be_bytes())?;
    put(ip, 10, [0, 0])?;
    let checksum = Sum::default().bytes(ip).complement();
    put(ip, 10, checksum)?;
    Some(Sum::default().bytes(ip.get(12..20)?))
}

/// Writes the length of an IPv6 header for `length` bytes of transport behind its extension headers (RFC
/// 8200, 3). Returns the sum of the addresses.
fn finish_ipv6(ip: &mut [u8], length: u16) -> Option<Sum> {
    let extensions = u16::try_from(ip.len().checked_sub(40)?).ok()?;
    put(ip, 4, extensions.checked_add(length)?.to_be_bytes())?;
    Some(Sum::default().bytes(ip.get(8..40)?))
}
