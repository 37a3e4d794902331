//! VLAN tags (IEEE 802.1Q): removed when a frame enters the switch, and added when it leaves on a trunk.
//!
//! A frame may have one tag at most. A frame with a second tag, or with a service tag (802.1ad), is dropped.
//! Removing one tag of two would leave a frame that the next switch assigns to another VLAN (VLAN hopping).

use vhost::limits::MAX_FRAME;
use vhost::net_header::{GSO_NONE, NEEDS_CSUM, NetHeader};

use super::rules::{MAX_VLAN, VlanRules};
use crate::control::DropReason;
use crate::frame::{ETHERNET, Head};

/// Bytes of a tag.
const TAG: u16 = 4;
/// EtherType of a VLAN tag.
const C_TAG: u16 = 0x8100;
/// EtherTypes of tags that no port may send: 802.1ad and its predecessors.
const SERVICE: [u16; 3] = [0x88a8, 0x9100, 0x9200];

/// Priority and VLAN of a frame, encoded as in its tag (802.1Q, 9.6). The VLAN is 0 on ports without VLANs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tci(u16);

impl Tci {
    /// No VLAN.
    pub const NONE: Self = Self(0);

    /// Returns the VLAN.
    #[inline]
    #[must_use]
    pub fn vlan(self) -> u16 {
        self.0 & 0xfff
    }

    /// Creates the TCI of a frame of this VLAN with the lowest priority.
    #[must_use]
    pub fn of(vlan: u16) -> Self {
        Self(vlan & 0xfff)
    }

    /// Returns the same priority in another VLAN.
    fn in_vlan(self, vlan: u16) -> Self {
        Self(self.0 & 0xf000 | vlan & 0xfff)
    }
}

/// Whether a frame leaves a port with a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// Without a VLAN tag.
    Untagged,
    /// With its VLAN tag.
    Tagged,
}

/// The VLANs of a port.
#[derive(Debug)]
pub(super) struct Vlans {
    untagged: Option<u16>,
    /// A bit for each VLAN.
    tagged: Box<[u64; 64]>,
}

impl Vlans {
    pub(super) fn new(rules: &VlanRules) -> Self {
        let mut tagged = Box::new([0_u64; 64]);
        for (from, to) in &rules.tagged {
            for vlan in *from..=(*to).min(MAX_VLAN) {
                if let Some(word) = tagged.get_mut(usize::from(vlan / 64)) {
                    *word |= 1 << (vlan % 64);
                }
            }
        }
        let untagged = rules.untagged;
        Self { untagged, tagged }
    }

    fn has_tagged(&self, vlan: u16) -> bool {
        let word = self.tagged.get(usize::from(vlan / 64));
        word.is_some_and(|word| word >> (vlan % 64) & 1 == 1)
    }

    /// Returns the TCI of frames without a tag.
    pub(super) fn untagged(&self) -> Tci {
        self.untagged.map_or(Tci::NONE, Tci::of)
    }

    /// Removes the tag of a frame that enters the switch. `read` reads the bytes behind the head.
    pub(super) fn enter(
        &self,
        head: &mut Head,
        mut read: impl FnMut(&mut [u8]) -> usize,
    ) -> Result<Tci, DropReason> {
        let kind = head.ether_type();
        if SERVICE.contains(&kind) {
            return Err(DropReason::Vlan);
        }
        let tci = if kind == C_TAG {
            pop(head, &mut read)?
        } else {
            Tci::NONE
        };
        match tci.vlan() {
            // A priority tag (9.6): the frame counts as untagged.
            0 => self
                .untagged
                .map(|vlan| tci.in_vlan(vlan))
                .ok_or(DropReason::Vlan),
            vlan if self.has_tagged(vlan) => Ok(tci),
            _ => Err(DropReason::Vlan),
        }
    }

    /// Returns whether a frame leaves with a tag; `None` when the port is not in its VLAN.
    pub(super) fn leave(&self, tci: Tci) -> Option<Tagging> {
        let vlan = tci.vlan();
        if self.untagged == Some(vlan) {
            return Some(Tagging::Untagged);
        }
        self.has_tagged(vlan).then_some(Tagging::Tagged)
    }
}

/// Removes the tag.
fn pop(head: &mut Head, read: &mut impl FnMut(&mut [u8]) -> usize) -> Result<Tci, DropReason> {
    let mut tag = [0; TAG as usize];
    let length = head.length.checked_sub(u32::from(TAG));
    let length = length.filter(|length| *length >= ETHERNET);
    let (Some(length), true) = (length, read(&mut tag) == tag.len()) else {
        return Err(DropReason::BadLength);
    };
    let [a, b, c, d] = tag;
    let kind = u16::from_be_bytes([c, d]);
    if kind == C_TAG || SERVICE.contains(&kind) {
        return Err(DropReason::Vlan);
    }
    let header = moved(head.header(), |place| place.checked_sub(TAG));
    let header = header.filter(|header| {
        header.flags & NEEDS_CSUM == 0 || u32::from(header.csum_start) >= ETHERNET
    });
    // A checksum must not begin inside the tag.
    let header = header.ok_or(DropReason::Untranslatable)?;
    head.start = head.start.with_header(header);
    head.set_ether_type(kind);
    head.length = length;
    Ok(Tci(u16::from_be_bytes([a, b])))
}

/// Adds a tag: returns the head of the tagged frame, and the four bytes behind it. Returns `None` when the
/// frame gets too long.
#[must_use]
pub(super) fn push(head: &Head, tci: Tci) -> Option<(Head, [u8; 4])> {
    let header = moved(head.header(), |place| place.checked_add(TAG))?;
    let length = head.length + u32::from(TAG);
    let mut tagged = Head {
        start: head.start.with_header(header),
        length,
    };
    let ([a, b], [c, d]) = (tci.0.to_be_bytes(), head.ether_type().to_be_bytes());
    tagged.set_ether_type(C_TAG);
    (length <= MAX_FRAME).then_some((tagged, [a, b, c, d]))
}

/// Returns a network header whose offsets, as far as they are meaningful, are shifted by `by`.
fn moved(header: NetHeader, by: impl Fn(u16) -> Option<u16>) -> Option<NetHeader> {
    let mut moved = header;
    if header.flags & NEEDS_CSUM != 0 {
        moved.csum_start = by(header.csum_start)?;
    }
    if header.flags & NEEDS_CSUM != 0 || header.gso_type != GSO_NONE {
        // `hdr_len` is only a hint (virtio 1.3, 5.1.6.2.2).
        moved.hdr_len = by(header.hdr_len).unwrap_or(header.hdr_len);
    }
    Some(moved)
}
