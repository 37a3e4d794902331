//! The layout of the control window: offsets and sizes in bytes, the same as in
//! `guest/direct/layout.h`. All numbers are little endian.

use crate::ram::Range;

pub use crate::limits::MEMBERS;

/// The number of entries in a ring.
pub const ENTRIES: u32 = 1024;

/// The maximum number of RAM ranges of a member.
pub const RANGES: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"vidirect");
const VERSION: u32 = 3;
const PAGE: u64 = 4096;
const ENTRY: u64 = 16;

/// The size of a ring in bytes.
const RING: u64 = PAGE + ENTRIES as u64 * ENTRY;

/// The offset of the member's nonce in the member's page.
const NONCE: u64 = 2056;

/// The offsets of a ring's words in the ring.
const SESSION: u64 = 0;
const SENT: u64 = 16;
const ACCEPTED: u64 = 128;

/// The offset of the table in a member's page that lists the peers to which the member sends over the
/// direct channel.
const ROUTED: usize = 16 + RANGES * 24;

/// The size in bytes of the part of a member's page that the host writes.
pub(crate) const HOST_PART: usize = ROUTED + MEMBERS as usize;

/// The size of the window in bytes, rounded up to a power of two as a PCI BAR requires.
pub(crate) const LENGTH: u64 =
    (PAGE + MEMBERS as u64 * (PAGE + MEMBERS as u64 * RING)).next_power_of_two();

/// Returns the window's header.
pub(crate) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    for word in [VERSION, MEMBERS, ENTRIES] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// Returns the offset of a member's page.
pub(crate) fn member(id: u32) -> u64 {
    PAGE * u64::from(1 + id)
}

/// Returns the offset of a member's nonce. The nonce is 0 until the member writes one.
pub(crate) fn nonce(id: u32) -> u64 {
    member(id) + NONCE
}

/// Returns the offset of the byte that says whether traffic from member `from` to member `to` uses the
/// direct channel.
pub(crate) fn routed(from: u32, to: u32) -> u64 {
    member(from) + ROUTED as u64 + u64::from(to)
}

/// Returns the offset of the ring on which member `from` sends to member `to`.
#[must_use]
pub fn ring(from: u32, to: u32) -> u64 {
    member(MEMBERS) + u64::from(from * MEMBERS + to) * RING
}

/// Returns the offset of a ring's session number, which the sender writes.
pub(crate) fn session(from: u32, to: u32) -> u64 {
    ring(from, to) + SESSION
}

/// Returns the offset of the sender's counters in a ring: packets and bytes of TCP, then packets and
/// bytes of all other traffic, each a word of 8 bytes.
pub(crate) fn sent(from: u32, to: u32) -> u64 {
    ring(from, to) + SENT
}

/// Returns the offset of the session number that the receiver writes when it accepts a session.
pub(crate) fn accepted(from: u32, to: u32) -> u64 {
    ring(from, to) + ACCEPTED
}

/// Returns the part of a member's page that the host writes. Returns `None` if the member has no RAM
/// ranges or more than [`RANGES`].
pub(crate) fn host_part(mac: [u8; 6], ranges: &[Range]) -> Option<Vec<u8>> {
    let count = u32::try_from(ranges.len()).ok()?;
    if ranges.is_empty() || ranges.len() > RANGES {
        return None;
    }
    let mut bytes = Vec::with_capacity(HOST_PART);
    bytes.extend(1u32.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(mac);
    bytes.extend([0; 2]);
    for range in ranges {
        for word in [range.start, range.length, range.offset] {
            bytes.extend(word.to_le_bytes());
        }
    }
    bytes.resize(HOST_PART, 0);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_follow_each_other_as_in_the_guests_header_file() {
        assert_eq!(member(0), 4096);
        assert_eq!(ring(0, 0), 17 * 4096);
        assert_eq!(ring(0, 1) - ring(0, 0), 5 * 4096);
        assert_eq!(sent(0, 1) - ring(0, 1), 16);
        assert_eq!(ring(1, 0) - ring(0, 0), 16 * 5 * 4096);
        assert!(ring(MEMBERS - 1, MEMBERS - 1) + RING <= LENGTH);
        assert_eq!(LENGTH, 8 << 20);
    }

    #[test]
    fn a_member_without_ram_or_with_too_much_of_it_is_none() {
        let range = Range {
            start: 1 << 20,
            length: 1 << 20,
            offset: 0,
        };
        assert!(host_part([2; 6], &[]).is_none());
        assert!(host_part([2; 6], &[range; RANGES + 1]).is_none());
        let bytes = host_part([2; 6], &[range; RANGES]).unwrap();
        assert_eq!(bytes.len(), HOST_PART);
        assert_eq!(&bytes[..8], [1, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!(&bytes[16..24], (1u64 << 20).to_le_bytes());
        assert_eq!(routed(2, 3) - member(2), 211);
        assert_eq!(HOST_PART, 224);
    }
}
