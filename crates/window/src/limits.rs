//! Limits on everything the other side can ask for.

/// Slots of a ring; a power of two.
pub const SLOTS: std::ops::RangeInclusive<u32> = 8..=4096;

/// Bytes of a lane's data area; a power of two.
pub const DATA: std::ops::RangeInclusive<u32> = 4096..=(16 << 20);

/// Members of a region.
pub const MEMBERS: std::ops::RangeInclusive<u32> = 1..=64;

/// Links of a region.
pub const LINKS: std::ops::RangeInclusive<u32> = 1..=4096;

/// Units of a member's heap. Their 4-byte generations fit into one page.
pub const UNITS: std::ops::RangeInclusive<u32> = 0..=1024;

/// Bytes of handshake data in an offer or an answer.
pub const HANDSHAKE_DATA: usize = 256;

/// Bytes of a peer's heap.
pub const HEAP: u64 = 1 << 40;

/// Wake-up messages read from one socket at a time, so that a peer that sends more gets no more
/// time.
pub const WAKEUPS_PER_READ: usize = 16;

/// Events that one wait takes from the kernel.
pub const EVENTS: usize = 32;
