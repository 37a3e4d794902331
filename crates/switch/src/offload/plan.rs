//! Compares the offloads of a frame with those that a receiver accepts, and plans the translation.

use super::wire::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ether_type};

/// The kind of a GSO frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Gso {
    /// Not a GSO frame.
    #[default]
    None,
    /// TCP over IPv4 (`VIRTIO_NET_HDR_GSO_TCPV4`).
    Tcp4,
    /// TCP over IPv6 (`VIRTIO_NET_HDR_GSO_TCPV6`).
    Tcp6,
    /// UDP over IPv4 (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp4,
    /// UDP over IPv6 (`VIRTIO_NET_HDR_GSO_UDP_L4`).
    Udp6,
}

impl Gso {
    /// Returns the kind of a `VIRTIO_NET_HDR_GSO_UDP_L4` frame, whose network header does not contain the
    /// IP version. `head` is the frame or its first 22 bytes. Returns `None` when it is not an IP frame.
    pub fn udp(head: &[u8]) -> Option<Self> {
        match ether_type(head)?.0 {
            ETHERTYPE_IPV4 => Some(Self::Udp4),
            ETHERTYPE_IPV6 => Some(Self::Udp6),
            _ => None,
        }
    }
}

/// The offloads that a frame's sender requests: the content of the network header (virtio 1.2, 5.1.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offload {
    /// The checksum is partial: its field has the sum of the pseudo header.
    pub needs_csum: bool,
    /// The kind of segmentation.
    pub gso: Gso,
    /// The frame has CWR set, which only its first segment may keep.
    pub ecn: bool,
    /// Length of all headers, according to the sender. A hint that must not be relied on (5.1.6.2.2); it is
    /// copied to segments and not used otherwise.
    pub hdr_len: u16,
    /// Payload bytes of each segment except the last.
    pub gso_size: u16,
    /// Offset in the frame from which the checksum is computed.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

/// The offloads that a receiver has negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Accepts {
    /// `VIRTIO_NET_F_GUEST_CSUM`: partial checksums.
    pub csum: bool,
    /// `VIRTIO_NET_F_GUEST_TSO4`.
    pub tso4: bool,
    /// `VIRTIO_NET_F_GUEST_TSO6`.
    pub tso6: bool,
    /// `VIRTIO_NET_F_GUEST_ECN`: GSO frames with CWR.
    pub ecn: bool,
    /// `VIRTIO_NET_F_GUEST_USO4`.
    pub uso4: bool,
    /// `VIRTIO_NET_F_GUEST_USO6`.
    pub uso6: bool,
}

impl Accepts {
    /// Returns whether the receiver accepts a GSO frame without segmentation. Every GSO frame has a partial
    /// checksum (5.1.6.4.1), so `csum` is needed for all of them.
    fn accepts_gso(self, offload: &Offload) -> bool {
        let kind = match offload.gso {
            Gso::None => true,
            Gso::Tcp4 => self.tso4,
            Gso::Tcp6 => self.tso6,
            Gso::Udp4 => self.uso4,
            Gso::Udp6 => self.uso6,
        };
        kind && self.csum && (self.ecn || !offload.ecn)
    }
}

/// The translation that a frame needs before a receiver may get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Plan {
    /// None: deliver the frame unchanged.
    PassThrough,
    /// Complete the checksum with [`fill_checksum`](super::fill_checksum).
    Checksum,
    /// Segment the frame with a [`Segmenter`](super::Segmenter).
    Segment {
        /// The receiver does not accept partial checksums.
        full_checksum: bool,
    },
}

/// Returns the translation that a frame needs before a receiver may get it (virtio 1.2, 5.1.6.4.1).
///
/// A GSO frame without `needs_csum` is invalid from a driver (5.1.6.2.1), but a tap delivers such frames
/// when a network card has merged segments. They cannot be passed on, because a device must set both, so
/// they are segmented for every receiver.
pub fn plan(offload: &Offload, receiver: Accepts) -> Plan {
    let full_checksum = !receiver.csum;
    if offload.gso != Gso::None {
        if offload.needs_csum && receiver.accepts_gso(offload) {
            return Plan::PassThrough;
        }
        return Plan::Segment { full_checksum };
    }
    if offload.needs_csum && full_checksum {
        return Plan::Checksum;
    }
    Plan::PassThrough
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Gso; 5] = [Gso::None, Gso::Tcp4, Gso::Tcp6, Gso::Udp4, Gso::Udp6];

    fn accepts(bits: u8) -> Accepts {
        let bit = |n: u8| bits >> n & 1 == 1;
        Accepts {
            csum: bit(0),
            tso4: bit(1),
            tso6: bit(2),
            ecn: bit(3),
            uso4: bit(4),
            uso6: bit(5),
        }
    }

    /// Returns every combination of flags and GSO kinds, with all other fields set.
    fn offloads() -> impl Iterator<Item = Offload> {
        KINDS.into_iter().flat_map(|gso| {
            (0..4_u8).map(move |bits| Offload {
                needs_csum: bits & 1 != 0,
                ecn: bits & 2 != 0,
                gso,
                hdr_len: 54,
                gso_size: 1460,
                csum_start: 34,
                csum_offset: 16,
            })
        })
    }

    #[test]
    fn virtio_5_1_6_4_1_nothing_is_translated_that_the_receiver_accepts() {
        let all = accepts(63);
        for offload in offloads() {
            if offload.gso != Gso::None && !offload.needs_csum {
                let cut = Plan::Segment {
                    full_checksum: false,
                };
                assert_eq!(plan(&offload, all), cut);
                continue;
            }
            assert_eq!(plan(&offload, all), Plan::PassThrough);
        }
    }

    #[test]
    fn virtio_5_1_6_4_1_plans_by_example() {
        let frame = |needs_csum, gso, ecn| Offload {
            needs_csum,
            gso,
            ecn,
            ..Offload::default()
        };
        let (nothing, csum) = (accepts(0), accepts(1));
        let tso4 = Accepts {
            csum: true,
            tso4: true,
            ..nothing
        };
        let segment = |full_checksum| Plan::Segment { full_checksum };
        for (offload, receiver, expected) in [
            (frame(false, Gso::None, false), nothing, Plan::PassThrough),
            (frame(true, Gso::None, false), nothing, Plan::Checksum),
            (frame(true, Gso::None, false), csum, Plan::PassThrough),
            (frame(true, Gso::Tcp4, false), nothing, segment(true)),
            (frame(true, Gso::Tcp4, false), csum, segment(false)),
            (frame(true, Gso::Tcp4, false), tso4, Plan::PassThrough),
            (frame(true, Gso::Tcp4, true), tso4, segment(false)),
            (frame(true, Gso::Tcp6, false), tso4, segment(false)),
            (frame(true, Gso::Udp4, false), tso4, segment(false)),
            (frame(false, Gso::Tcp4, false), tso4, segment(false)),
        ] {
            assert_eq!(
                plan(&offload, receiver),
                expected,
                "{offload:?} to {receiver:?}"
            );
        }
    }
}
