//! Converts between network headers and offloads, and translates frames for receivers that have not negotiated
//! their offloads (the slow path).

use vhost::frame_start::FrameStart;
use vhost::net_header::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};
use virtio_bindings::virtio_net as net;

use crate::frame::{Head, Rest};
use crate::offload::{Accepts, Gso, Offload, Plan, Segmenter, fill_checksum, plan};

/// Returns the offloads that a receiver with these virtio features accepts (5.1.6.4.1).
#[must_use]
pub fn accepts(features: u64) -> Accepts {
    let has = |bit: u32| features & (1 << bit) != 0;
    Accepts {
        csum: has(net::VIRTIO_NET_F_GUEST_CSUM),
        tso4: has(net::VIRTIO_NET_F_GUEST_TSO4),
        tso6: has(net::VIRTIO_NET_F_GUEST_TSO6),
        ecn: has(net::VIRTIO_NET_F_GUEST_ECN),
        uso4: has(net::VIRTIO_NET_F_GUEST_USO4),
        uso6: has(net::VIRTIO_NET_F_GUEST_USO6),
    }
}

/// Returns the offloads that a checked header requests; `None` when it requests UDP segmentation of a frame
/// that is not IP.
#[must_use]
pub fn offload(head: &Head, rest: &Rest<'_, '_>) -> Option<Offload> {
    let header = head.header();
    let gso = match header.gso_type & !GSO_ECN {
        GSO_NONE => Gso::None,
        GSO_TCPV4 => Gso::Tcp4,
        GSO_TCPV6 => Gso::Tcp6,
        _ => udp(head, rest)?,
    };
    Some(Offload {
        needs_csum: header.flags & NEEDS_CSUM != 0,
        gso,
        ecn: header.gso_type & GSO_ECN != 0,
        hdr_len: header.hdr_len,
        gso_size: header.gso_size,
        csum_start: header.csum_start,
        csum_offset: header.csum_offset,
    })
}

/// Returns the IP version of a UDP GSO frame, which the network header does not contain.
fn udp(head: &Head, rest: &Rest<'_, '_>) -> Option<Gso> {
    // At most two VLAN tags precede the EtherType.
    let mut start = [0; FrameStart::ETHERNET + 8];
    let (ethernet, tags) = start.split_at_mut(FrameStart::ETHERNET);
    ethernet.copy_from_slice(&head.ethernet());
    let mut peek = *rest;
    peek.read(tags);
    Gso::udp(&start)
}

/// Returns the network header of a segment, which never requests segmentation.
fn header(offload: &Offload) -> NetHeader {
    if !offload.needs_csum {
        return NetHeader::default();
    }
    NetHeader {
        flags: NEEDS_CSUM,
        hdr_len: offload.hdr_len,
        csum_start: offload.csum_start,
        csum_offset: offload.csum_offset,
        ..NetHeader::default()
    }
}

/// Returns the translation that a receiver needs; `None` when the frame cannot be translated.
#[must_use]
pub fn plan_for(head: &Head, rest: &Rest<'_, '_>, features: u64) -> Option<(Plan, Offload)> {
    let offload = offload(head, rest)?;
    Some((plan(&offload, accepts(features)), offload))
}

/// Private memory for a frame and for one segment of it.
#[derive(Debug)]
pub struct Scratch {
    frame: Box<[u8]>,
    segment: Box<[u8]>,
}

/// A translated frame in private memory.
#[derive(Debug)]
pub struct Translated<'s> {
    cut: Cut<'s>,
    segment: &'s mut [u8],
}

#[derive(Debug)]
enum Cut<'s> {
    Whole(&'s [u8]),
    Segments(Segmenter<'s>),
}

impl Default for Scratch {
    fn default() -> Self {
        let room = || vec![0; vhost::limits::MAX_FRAME as usize].into_boxed_slice();
        Self {
            frame: room(),
            segment: room(),
        }
    }
}

impl Scratch {
    /// Copies a frame to this memory, and computes its checksum or prepares its segmentation. Returns `None`
    /// when the frame does not match its network header.
    pub fn translate(
        &mut self,
        plan: Plan,
        offload: &Offload,
        head: &Head,
        rest: &mut Rest<'_, '_>,
    ) -> Option<Translated<'_>> {
        let frame = self.frame.get_mut(..head.length as usize)?;
        let (ethernet, body) = frame.split_at_mut_checked(FrameStart::ETHERNET)?;
        ethernet.copy_from_slice(&head.ethernet());
        if rest.read(body) != body.len() {
            return None;
        }
        let cut = match plan {
            Plan::PassThrough => Cut::Whole(frame),
            Plan::Checksum => {
                fill_checksum(frame, offload.csum_start, offload.csum_offset).ok()?;
                Cut::Whole(frame)
            }
            Plan::Segment { full_checksum } => {
                Cut::Segments(Segmenter::new(frame, offload, full_checksum).ok()?)
            }
        };
        Some(Translated {
            cut,
            segment: &mut self.segment,
        })
    }
}

impl Translated<'_> {
    /// Returns the frame or the segment at `index`; `None` behind the last one.
    pub fn piece(&mut self, index: u16) -> Option<(Head, &[u8])> {
        match &self.cut {
            Cut::Whole(frame) if index == 0 => Head::of_private(NetHeader::default(), frame),
            Cut::Whole(_) => None,
            Cut::Segments(segmenter) => {
                let written = segmenter.write(usize::from(index), self.segment)?;
                let bytes = self.segment.get(..written.len)?;
                Head::of_private(header(&written.offload), bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vhost::net_header::GSO_UDP_L4;

    use super::*;
    use crate::offload::frames::{Flow, bytes, flow, gso_size, payload_length};
    use crate::offload::reference::segments;

    /// Returns the features of a receiver, from six bits.
    fn features(bits: u8) -> u64 {
        [
            net::VIRTIO_NET_F_GUEST_CSUM,
            net::VIRTIO_NET_F_GUEST_TSO4,
            net::VIRTIO_NET_F_GUEST_TSO6,
            net::VIRTIO_NET_F_GUEST_ECN,
            net::VIRTIO_NET_F_GUEST_USO4,
            net::VIRTIO_NET_F_GUEST_USO6,
        ]
        .iter()
        .enumerate()
        .filter(|(n, _)| bits >> n & 1 == 1)
        .map(|(_, bit)| 1 << bit)
        .sum()
    }

    /// Returns the bit that a receiver needs, besides `GUEST_CSUM`, to get a frame of this kind untranslated.
    fn bit(gso: Gso) -> u8 {
        match gso {
            Gso::None => 0,
            Gso::Tcp4 => 1 << 1,
            Gso::Tcp6 => 1 << 2,
            Gso::Udp4 => 1 << 4,
            Gso::Udp6 => 1 << 5,
        }
    }

    /// Returns the network header that a sender puts in front of a frame of this flow.
    fn header_of(flow: &Flow, gso_size: Option<u16>) -> NetHeader {
        let offload = flow.offload(gso_size.unwrap_or_default());
        let kind = match flow.gso {
            Gso::Tcp4 => GSO_TCPV4,
            Gso::Tcp6 => GSO_TCPV6,
            _ => GSO_UDP_L4,
        };
        let ecn = if offload.ecn { GSO_ECN } else { 0 };
        NetHeader {
            flags: NEEDS_CSUM,
            gso_type: if gso_size.is_some() {
                kind | ecn
            } else {
                GSO_NONE
            },
            hdr_len: offload.hdr_len,
            gso_size: offload.gso_size,
            csum_start: offload.csum_start,
            csum_offset: offload.csum_offset,
            num_buffers: 0,
        }
    }

    /// Returns the headers and frames that a receiver with these features gets for a frame.
    fn given(header: NetHeader, frame: &[u8], features: u64) -> Vec<(NetHeader, Vec<u8>)> {
        let (head, rest) = Head::of_private(header, frame).unwrap();
        let mut rest = Rest::Private(rest);
        let (plan, offload) = plan_for(&head, &rest, features).unwrap();
        if plan == Plan::PassThrough {
            return vec![(head.header(), frame.to_vec())];
        }
        let mut scratch = Scratch::default();
        let mut translated = scratch.translate(plan, &offload, &head, &mut rest).unwrap();
        let mut all = vec![];
        while let Some((head, rest)) = translated.piece(u16::try_from(all.len()).unwrap()) {
            let frame = [&head.ethernet()[..], rest].concat();
            all.push((head.header(), frame));
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// A receiver gets the frame unchanged if it has negotiated all its offloads; otherwise it gets, byte
        /// for byte, the frames of a sender without offloads.
        #[test]
        fn virtio_5_1_6_4_1_every_mix_of_sender_and_receiver(
            flow in flow(), length in payload_length(), size in prop::option::of(gso_size()),
            bits in 0_u8..64, seed: u32,
        ) {
            let room = 65_535 - (flow.payload() - if flow.ipv4() { flow.ip() } else { flow.ip() + 40 });
            let payload = bytes(length.min(room), seed);
            let frame = flow.frame(&payload, false);
            let header = header_of(&flow, size);
            let csum = bits & 1 != 0;
            let ecn = size.is_some() && flow.offload(0).ecn;
            let whole = csum
                && (size.is_none() || bits & bit(flow.gso) != 0)
                && (!ecn || bits & 1 << 3 != 0);
            let given = given(header, &frame, features(bits));
            if whole {
                prop_assert_eq!(given, vec![(header, frame)]);
                return Ok(());
            }
            let expected = match size {
                Some(size) => segments(&flow, &payload, size, !csum),
                None => vec![flow.frame(&payload, true)],
            };
            prop_assert_eq!(given.len(), expected.len());
            for ((header, frame), expected) in given.iter().zip(&expected) {
                prop_assert_eq!(frame, expected);
                prop_assert_eq!(header.gso_type, GSO_NONE);
                prop_assert_eq!(header.gso_size, 0);
                prop_assert_eq!(header.flags, if csum { NEEDS_CSUM } else { 0 });
                let at = (header.csum_start, header.csum_offset);
                let sent = (header_of(&flow, size).csum_start, header_of(&flow, size).csum_offset);
                prop_assert_eq!(at, if csum { sent } else { (0, 0) });
            }
        }
    }
}
