//! The control window, as `guest/direct/layout.h` has it: what is where, in bytes. All numbers are
//! little endian.

use crate::ram::Range;

pub use crate::limits::MEMBERS;

/// Entries of a ring.
pub const ENTRIES: u32 = 1024;

/// Ranges of RAM that a member can have.
pub const RANGES: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"vidirect");
const VERSION: u32 = 3;
const PAGE: u64 = 4096;
const ENTRY: u64 = 16;

/// Bytes of a ring.
const RING: u64 = PAGE + ENTRIES as u64 * ENTRY;

/// Where the member's nonce is in its page.
const NONCE: u64 = 2056;

/// Where the words are in a ring.
const SESSION: u64 = 0;
const SENT: u64 = 16;
const ACCEPTED: u64 = 128;

/// Where a member's page says to whom it is to send here.
const ROUTED: usize = 16 + RANGES * 24;

/// Bytes of a member's page that are the host's.
pub(crate) const HOST_PART: usize = ROUTED + MEMBERS as usize;

/// Bytes of the window: a BAR is a power of two.
pub(crate) const LENGTH: u64 =
    (PAGE + MEMBERS as u64 * (PAGE + MEMBERS as u64 * RING)).next_power_of_two();

/// The header.
pub(crate) fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    for word in [VERSION, MEMBERS, ENTRIES] {
        bytes.extend(word.to_le_bytes());
    }
    bytes
}

/// Where a member's page is.
pub(crate) fn member(id: u32) -> u64 {
    PAGE * u64::from(1 + id)
}

/// Where a member's nonce is; 0 while it has none.
pub(crate) fn nonce(id: u32) -> u64 {
    member(id) + NONCE
}

/// Where it is said whether a member's traffic to another is to go by the direct channel: a byte.
pub(crate) fn routed(from: u32, to: u32) -> u64 {
    member(from) + ROUTED as u64 + u64::from(to)
}

/// Where the ring is that one member sends to another on.
#[must_use]
pub fn ring(from: u32, to: u32) -> u64 {
    member(MEMBERS) + u64::from(from * MEMBERS + to) * RING
}

/// Where a ring's session is, which the sender writes.
pub(crate) fn session(from: u32, to: u32) -> u64 {
    ring(from, to) + SESSION
}

/// Where a ring's sender counts: packets and bytes of TCP, and of all else, words of 8 bytes.
pub(crate) fn sent(from: u32, to: u32) -> u64 {
    ring(from, to) + SENT
}

/// Where it is accepted, by the receiver.
pub(crate) fn accepted(from: u32, to: u32) -> u64 {
    ring(from, to) + ACCEPTED
}

/// The host's part of a member's page; `None` when it has too many ranges.
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
