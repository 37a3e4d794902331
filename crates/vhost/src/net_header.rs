//! The network header in front of every frame (virtio 1.3, section 5.1.6), and its validation. No
//! other code in the workspace validates network headers.

use virtio_bindings::virtio_net as net;

use crate::fault::RingFault;

/// A virtio-net header, read from guest memory once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetHeader {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`.
    pub gso_type: u8,
    /// Length of the frame's headers in bytes; a hint.
    pub hdr_len: u16,
    /// Payload bytes of each segment of a GSO frame.
    pub gso_size: u16,
    /// Offset in the frame from which the checksum is computed.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
    /// Number of receive buffers that hold the frame; only meaningful for received frames.
    pub num_buffers: u16,
}

/// `flags`: the checksum is partial.
pub const NEEDS_CSUM: u8 = 1;
/// `gso_type`: not a GSO frame.
pub const GSO_NONE: u8 = 0;
/// `gso_type`: TCP over IPv4.
pub const GSO_TCPV4: u8 = 1;
/// `gso_type`: TCP over IPv6.
pub const GSO_TCPV6: u8 = 4;
/// `gso_type`: UDP segmentation into datagrams (USO).
pub const GSO_UDP_L4: u8 = 5;
/// Added to a TCP `gso_type`: the first segment has CWR set.
pub const GSO_ECN: u8 = 0x80;

// The fields of the header are bytes, while the constants of the bindings are `u32`.
const _: () = assert!(
    NEEDS_CSUM as u32 == net::VIRTIO_NET_HDR_F_NEEDS_CSUM
        && GSO_NONE as u32 == net::VIRTIO_NET_HDR_GSO_NONE
        && GSO_TCPV4 as u32 == net::VIRTIO_NET_HDR_GSO_TCPV4
        && GSO_TCPV6 as u32 == net::VIRTIO_NET_HDR_GSO_TCPV6
        && GSO_UDP_L4 as u32 == net::VIRTIO_NET_HDR_GSO_UDP_L4
        && GSO_ECN as u32 == net::VIRTIO_NET_HDR_GSO_ECN
);

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;

impl NetHeader {
    /// The header of a frame without offloads.
    pub const NONE: Self = Self {
        flags: 0,
        gso_type: 0,
        hdr_len: 0,
        gso_size: 0,
        csum_start: 0,
        csum_offset: 0,
        num_buffers: 0,
    };

    /// Bytes of the header with `num_buffers`, which every VERSION_1 driver uses.
    pub const SIZE: usize = 12;

    /// Bytes of the header of a legacy driver without mergeable buffers.
    pub const LEGACY_SIZE: usize = 10;

    /// Converts from bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        let second = u32::from_le_bytes([i, j, k, l]);
        Self::from_words(u64::from_le_bytes([a, b, c, d, e, f, g, h]), second.into())
    }

    /// Converts to bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let (first, second) = self.to_words();
        let ([a, b, c, d, e, f, g, h], [i, j, k, l, ..]) =
            (first.to_le_bytes(), second.to_le_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Converts from bytes 0 to 7 and 8 to 11 as little-endian numbers; ignores the upper half of
    /// the second number.
    #[inline]
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "picking fields out of words"
    )]
    pub fn from_words(first: u64, second: u64) -> Self {
        Self {
            flags: first as u8,
            gso_type: (first >> 8) as u8,
            hdr_len: (first >> 16) as u16,
            gso_size: (first >> 32) as u16,
            csum_start: (first >> 48) as u16,
            csum_offset: second as u16,
            num_buffers: (second >> 16) as u16,
        }
    }

    /// Converts to words; the reverse of [`from_words`](Self::from_words).
    #[inline]
    #[must_use]
    pub fn to_words(self) -> (u64, u64) {
        let first = u64::from(self.flags)
            | u64::from(self.gso_type) << 8
            | u64::from(self.hdr_len) << 16
            | u64::from(self.gso_size) << 32
            | u64::from(self.csum_start) << 48;
        (
            first,
            u64::from(self.csum_offset) | u64::from(self.num_buffers) << 16,
        )
    }

    /// Checks a transmitted header against the frame's length and the features that its driver
    /// negotiated (5.1.6.2.1). Returns the header that a receiver may get: it has only the fields
    /// that are meaningful, and `hdr_len` is clamped to a possible value.
    ///
    /// # Errors
    /// The header contradicts itself, the frame or the features.
    pub fn checked(self, frame: u32, features: u64) -> Result<Self, RingFault> {
        if self.flags & NEEDS_CSUM == 0 && self.gso_type == GSO_NONE {
            return Ok(Self::NONE);
        }
        self.checked_offload(frame, features)
            .map_err(RingFault::Header)
    }

    fn checked_offload(self, frame: u32, features: u64) -> Result<Self, &'static str> {
        if self.flags & NEEDS_CSUM == 0 {
            return Err("a frame to be cut has no partial checksum");
        }
        if !has(features, net::VIRTIO_NET_F_CSUM) {
            return Err("a partial checksum without the CSUM feature");
        }
        let field = u32::from(self.csum_start) + u32::from(self.csum_offset);
        if u32::from(self.csum_start) < ETHERNET || field + 2 > frame {
            return Err("the checksum lies outside the frame");
        }
        let (gso_type, gso_size) = match self.gso_type {
            GSO_NONE => (GSO_NONE, 0),
            _ => (self.checked_gso_type(features)?, self.gso_size),
        };
        if gso_type != GSO_NONE && gso_size == 0 {
            return Err("a frame to be cut has segments of no bytes");
        }
        // `clamp` needs `field + 2 <= frame`, which was checked above. The result may exceed a u16
        // for a frame of MAX_FRAME bytes; it is a hint, so it saturates.
        let hdr_len = u32::from(self.hdr_len).clamp(field + 2, frame);
        Ok(Self {
            flags: NEEDS_CSUM,
            gso_type,
            hdr_len: u16::try_from(hdr_len).unwrap_or(u16::MAX),
            gso_size,
            csum_start: self.csum_start,
            csum_offset: self.csum_offset,
            num_buffers: 0,
        })
    }

    fn checked_gso_type(self, features: u64) -> Result<u8, &'static str> {
        let feature = match self.gso_type & !GSO_ECN {
            GSO_TCPV4 => net::VIRTIO_NET_F_HOST_TSO4,
            GSO_TCPV6 => net::VIRTIO_NET_F_HOST_TSO6,
            GSO_UDP_L4 => net::VIRTIO_NET_F_HOST_USO,
            _ => return Err("an unknown way to cut the frame"),
        };
        if !has(features, feature) {
            return Err("a way to cut the frame that was not negotiated");
        }
        if self.gso_type & GSO_ECN != 0 && !has(features, net::VIRTIO_NET_F_HOST_ECN) {
            return Err("ECN without the HOST_ECN feature");
        }
        Ok(self.gso_type)
    }
}

#[inline]
fn has(features: u64, bit: u32) -> bool {
    features & (1 << bit) != 0
}
