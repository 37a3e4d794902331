//! Frames for tests: packets built field by field, with a simple checksum routine.

use proptest::prelude::*;

use super::{Gso, Offload};

/// The headers that all segments of a frame share, and the numbers of the first segment.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) gso: Gso,
    /// EtherTypes of the VLAN tags.
    pub(crate) tags: Vec<u16>,
    /// IPv4 options, a multiple of 4 bytes.
    pub(crate) ip_options: Vec<u8>,
    /// IPv6 extension headers: type and contents, a multiple of 8 bytes less 2.
    pub(crate) extensions: Vec<(u8, Vec<u8>)>,
    /// TCP options, a multiple of 4 bytes.
    pub(crate) tcp_options: Vec<u8>,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
    pub(crate) flags: u8,
}

impl Flow {
    /// Returns a flow of this kind without tags, options and extension headers.
    pub(crate) fn plain(gso: Gso) -> Self {
        Self {
            gso,
            tags: vec![],
            ip_options: vec![],
            extensions: vec![],
            tcp_options: vec![],
            id: 7,
            sequence: 1000,
            flags: 0x18,
        }
    }

    pub(crate) fn ipv4(&self) -> bool {
        matches!(self.gso, Gso::Tcp4 | Gso::Udp4)
    }

    pub(crate) fn tcp(&self) -> bool {
        matches!(self.gso, Gso::Tcp4 | Gso::Tcp6)
    }

    /// Returns the offset of the IP header.
    pub(crate) fn ip(&self) -> usize {
        14 + 4 * self.tags.len()
    }

    /// Returns the offset of the transport header.
    pub(crate) fn transport(&self) -> usize {
        let extensions: usize = self.extensions.iter().map(|(_, body)| body.len() + 2).sum();
        self.ip()
            + if self.ipv4() {
                20 + self.ip_options.len()
            } else {
                40 + extensions
            }
    }

    /// Returns the offset of the payload.
    pub(crate) fn payload(&self) -> usize {
        self.transport()
            + if self.tcp() {
                20 + self.tcp_options.len()
            } else {
                8
            }
    }

    /// Returns the frame of a sender without offloads, or the same frame with a partial checksum.
    pub(crate) fn frame(&self, payload: &[u8], full_checksum: bool) -> Vec<u8> {
        let protocol = if self.tcp() { 6 } else { 17 };
        let mut transport = if self.tcp() {
            self.tcp_header()
        } else {
            udp_header(payload.len())
        };
        transport.extend(payload);
        let (source, destination): (&[u8], &[u8]) = if self.ipv4() {
            (&[10, 0, 0, 1], &[10, 0, 0, 2])
        } else {
            (
                &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                &[0xfe; 16],
            )
        };
        let length = u16::try_from(transport.len()).unwrap();
        let mut pseudo = [source, destination].concat();
        pseudo.extend([0, protocol]);
        pseudo.extend(length.to_be_bytes());
        let checksum = if full_checksum {
            match !sum(&[pseudo, transport.clone()].concat()) {
                0 if !self.tcp() => 0xffff,
                checksum => checksum,
            }
        } else {
            sum(&pseudo)
        };
        let at = if self.tcp() { 16 } else { 6 };
        transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());

        let mut frame = self.ethernet();
        frame.extend(if self.ipv4() {
            self.ipv4_header(protocol, transport.len(), source, destination)
        } else {
            self.ipv6_headers(protocol, transport.len(), source, destination)
        });
        frame.extend(transport);
        frame
    }

    fn ethernet(&self) -> Vec<u8> {
        let mut header = vec![0x52, 0x54, 0, 0, 0, 2, 0x52, 0x54, 0, 0, 0, 1];
        for tag in &self.tags {
            header.extend(tag.to_be_bytes());
            header.extend([0x20, 0x64]);
        }
        header.extend(if self.ipv4() {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        });
        header
    }

    fn ipv4_header(&self, protocol: u8, length: usize, from: &[u8], to: &[u8]) -> Vec<u8> {
        let words = u8::try_from(5 + self.ip_options.len() / 4).unwrap();
        let total = u16::try_from(usize::from(words) * 4 + length).unwrap();
        let mut header = vec![0x40 | words, 0x02];
        header.extend(total.to_be_bytes());
        header.extend(self.id.to_be_bytes());
        header.extend([0x40, 0x00, 64, protocol, 0, 0]);
        header.extend(from);
        header.extend(to);
        header.extend(&self.ip_options);
        let checksum = !sum(&header);
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        header
    }

    fn ipv6_headers(&self, protocol: u8, length: usize, from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut types: Vec<u8> = self.extensions.iter().map(|(kind, _)| *kind).collect();
        types.push(protocol);
        let mut extensions = vec![];
        for ((_, body), next) in self.extensions.iter().zip(&types[1..]) {
            extensions.push(*next);
            extensions.push(u8::try_from((body.len() + 2) / 8 - 1).unwrap());
            extensions.extend(body);
        }
        let mut header = vec![0x60, 0x20, 0x12, 0x34];
        let counted = u16::try_from(extensions.len() + length).unwrap();
        header.extend(counted.to_be_bytes());
        header.extend([types[0], 64]);
        header.extend(from);
        header.extend(to);
        header.extend(extensions);
        header
    }

    fn tcp_header(&self) -> Vec<u8> {
        let words = u8::try_from(5 + self.tcp_options.len() / 4).unwrap();
        let mut header = vec![0x9c, 0x40, 0x14, 0x51];
        header.extend(self.sequence.to_be_bytes());
        header.extend([1, 2, 3, 4, words << 4, self.flags, 0xfa, 0xf0, 0, 0, 0, 9]);
        header.extend(&self.tcp_options);
        header
    }

    /// Returns the offload of a GSO frame of this flow.
    pub(crate) fn offload(&self, gso_size: u16) -> Offload {
        Offload {
            needs_csum: true,
            gso: self.gso,
            ecn: self.tcp() && self.flags & 0x80 != 0,
            hdr_len: u16::try_from(self.payload()).unwrap(),
            gso_size,
            csum_start: u16::try_from(self.transport()).unwrap(),
            csum_offset: if self.tcp() { 16 } else { 6 },
        }
    }
}

fn udp_header(payload: usize) -> Vec<u8> {
    let mut header = vec![0x9c, 0x40, 0x14, 0x51];
    header.extend(u16::try_from(8 + payload).unwrap().to_be_bytes());
    header.extend([0, 0]);
    header
}

/// Computes the sum of RFC 1071 word by word.
pub(crate) fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap()
}

/// Bytes that differ from their neighbours and from run to run.
pub(crate) fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

fn extension() -> impl Strategy<Value = (u8, Vec<u8>)> {
    (
        prop::sample::select(vec![0_u8, 43, 60]),
        1_usize..4,
        any::<u32>(),
    )
        .prop_map(|(kind, units, seed)| {
            let mut body = bytes(units * 8 - 2, seed);
            if kind == 43 {
                body[1] = 0; // No segments left.
            } else {
                body[0] = 1; // Padding options (RFC 8200, 4.2).
                body[1] = u8::try_from(units * 8 - 4).unwrap();
            }
            (kind, body)
        })
}

/// Generates every combination of GSO kind, tags, options, extension headers, flags and numbers.
pub(crate) fn flow() -> impl Strategy<Value = Flow> {
    let kinds = vec![Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6];
    let options = || (0_usize..=10, any::<u32>()).prop_map(|(words, seed)| bytes(words * 4, seed));
    let wrapping = prop_oneof![any::<u32>(), 0xffff_0000..=u32::MAX];
    (
        prop::sample::select(kinds),
        prop::collection::vec(prop::sample::select(vec![0x8100_u16, 0x88a8]), 0..=2),
        options(),
        prop::collection::vec(extension(), 0..4),
        options(),
        prop_oneof![any::<u16>(), 0xfff0..=u16::MAX],
        wrapping,
        any::<u8>(),
    )
        .prop_map(
            |(gso, tags, ip_options, extensions, tcp_options, id, sequence, flags)| Flow {
                gso,
                tags,
                ip_options,
                extensions,
                tcp_options,
                id,
                sequence,
                flags,
            },
        )
}

/// Payload lengths: none, about one segment, many segments, the largest packet.
pub(crate) fn payload_length() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(0),
        1_usize..300,
        300_usize..20_000,
        60_000_usize..=65_527
    ]
}

/// Segment sizes: the smallest, usual ones, jumbo ones, the largest.
pub(crate) fn gso_size() -> impl Strategy<Value = u16> {
    prop_oneof![48_u16..100, 500_u16..1461, 1461_u16..9000, Just(u16::MAX)]
}
