//! The first 26 bytes of a frame on a ring: the network header, then the Ethernet header.
//!
//! They are stored as words, not as bytes. The switch reads, inspects, changes and writes the start of
//! every frame, and words stay in registers. (As a byte array, the start cost two failed
//! store-to-load forwardings a frame, about a third of the time of a small frame.)
//!
//! ```text
//! word 0  flags u8, gso_type u8, hdr_len u16, gso_size u16, csum_start u16
//! word 1  csum_offset u16, num_buffers u16, destination octets 0 to 3
//! word 2  destination octets 4 and 5, source octets 0 to 5
//! tail    EtherType or VLAN tag
//! ```

use crate::net_header::{NEEDS_CSUM, NetHeader};

/// The network header and the Ethernet header of a frame, in private memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStart {
    /// Bytes 0 to 23, little endian.
    pub words: [u64; 3],
    /// Bytes 24 and 25, as a little-endian number.
    pub tail: u16,
}

impl FrameStart {
    /// Length in bytes.
    pub const SIZE: usize = NetHeader::SIZE + Self::ETHERNET;

    /// The same as `u32`, the type of lengths on rings.
    pub const BYTES: u32 = 26;

    /// Bytes of an Ethernet header without tags.
    pub const ETHERNET: usize = 14;

    /// Converts from bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::SIZE]) -> Self {
        let mut words = [0; 3];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk.try_into().map_or(0, u64::from_le_bytes);
        }
        let tail = bytes
            .last_chunk()
            .map_or(0, |tail| u16::from_le_bytes(*tail));
        Self { words, tail }
    }

    /// Converts to bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let words = self.words.iter().flat_map(|word| word.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(words.chain(self.tail.to_le_bytes())) {
            *to = from;
        }
        bytes
    }

    /// Returns the network header.
    #[inline]
    #[must_use]
    pub fn header(&self) -> NetHeader {
        let [first, second, _] = self.words;
        NetHeader::from_words(first, second)
    }

    /// Returns whether the network header requests no offload: neither a checksum nor GSO.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let [first, _, _] = self.words;
        first & (0xff00 | NEEDS_CSUM as u64) == 0
    }

    /// Returns the same start with another network header.
    #[inline]
    #[must_use]
    pub fn with_header(&self, header: NetHeader) -> Self {
        let [_, second, third] = self.words;
        let (first, low) = header.to_words();
        Self {
            words: [first, low | (second & !0xffff_ffff), third],
            tail: self.tail,
        }
    }

    /// Returns the destination address as a number; the octet that is first on the wire is the
    /// most significant one.
    #[inline]
    #[must_use]
    pub fn destination(&self) -> u64 {
        let [_, second, third] = self.words;
        ((second >> 32) | (third << 32)).swap_bytes() >> 16
    }

    /// Returns the source address, likewise.
    #[inline]
    #[must_use]
    pub fn source(&self) -> u64 {
        let [_, _, third] = self.words;
        (third >> 16).swap_bytes() >> 16
    }
}

const _: () = assert!(FrameStart::SIZE == FrameStart::BYTES as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: [u8; FrameStart::SIZE] = [
        1, 4, 66, 0, 0xb4, 5, 34, 0, 16, 0, 9, 0, // network header
        0x52, 0x54, 0, 1, 2, 3, // destination
        0x02, 0x11, 0x22, 0x33, 0x44, 0x55, // source
        0x08, 0x00,
    ];

    #[test]
    fn words_and_bytes_convert_both_ways() {
        let start = FrameStart::from_bytes(&BYTES);
        assert_eq!(start.to_bytes(), BYTES);
        assert_eq!(start.destination(), 0x5254_0001_0203);
        assert_eq!(start.source(), 0x0211_2233_4455);
    }

    #[test]
    fn spec_5_1_6_the_header_has_the_layout_of_the_specification() {
        let start = FrameStart::from_bytes(&BYTES);
        let header = NetHeader {
            flags: 1,
            gso_type: 4,
            hdr_len: 66,
            gso_size: 1460,
            csum_start: 34,
            csum_offset: 16,
            num_buffers: 9,
        };
        assert_eq!(start.header(), header);
        assert_eq!(start.with_header(header), start);
        let cleared = start.with_header(NetHeader::NONE).to_bytes();
        assert!(!start.is_plain() && start.with_header(NetHeader::NONE).is_plain());
        assert_eq!(cleared[..12], [0; 12]);
        assert_eq!(cleared[12..], BYTES[12..]);
    }
}
