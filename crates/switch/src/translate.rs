//! Between the virtio-net header on a ring and the offloads it stands for; and the slow path for
//! a receiver that has not negotiated a frame as it is.

use vhost::frame_start::FrameStart;
use vhost::net_header::{GSO_ECN, GSO_NONE, GSO_TCPV4, GSO_TCPV6, NEEDS_CSUM, NetHeader};
use virtio_bindings::virtio_net as net;

use crate::frame::{Head, Rest};
use crate::offload::{Accepts, Gso, Offload, Plan, Segmenter, fill_checksum, plan};

/// What a receiver with these virtio features takes (5.1.6.4.1).
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

/// The offloads a checked header asks for; `None` when it asks to cut UDP out of a frame that is
/// not IP.
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
        data_valid: false,
        gso,
        ecn: header.gso_type & GSO_ECN != 0,
        hdr_len: header.hdr_len,
        gso_size: header.gso_size,
        csum_start: header.csum_start,
        csum_offset: header.csum_offset,
    })
}

/// Which IP a UDP frame to be cut is: the header does not say.
fn udp(head: &Head, rest: &Rest<'_, '_>) -> Option<Gso> {
    // Two VLAN tags at most stand between the Ethernet header and its type.
    let mut start = [0; FrameStart::ETHERNET + 8];
    let (ethernet, tags) = start.split_at_mut(FrameStart::ETHERNET);
    ethernet.copy_from_slice(&head.ethernet());
    let mut peek = *rest;
    peek.read(tags);
    Gso::udp(&start)
}

/// The header of a segment, which is never to be cut itself.
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

/// What a receiver needs done to a frame; `None` when nothing can be done for it.
#[must_use]
pub fn plan_for(head: &Head, rest: &Rest<'_, '_>, features: u64) -> Option<(Plan, Offload)> {
    let offload = offload(head, rest)?;
    Some((plan(&offload, accepts(features)), offload))
}

/// Room for a frame and for a segment of it, in private memory.
#[derive(Debug)]
pub struct Scratch {
    frame: Box<[u8]>,
    segment: Box<[u8]>,
}

/// A frame in private memory, made into what a receiver accepts.
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
    /// Copy a frame here and finish its checksum, or prepare to cut it. `None` when it cannot be
    /// done: the frame is not what its header says.
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
    /// The frame or segment at `index`; `None` behind the last.
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
