//! Limits on everything the other side can ask for.

/// Slots a ring may have; a power of two.
pub const SLOTS: std::ops::RangeInclusive<u32> = 8..=4096;

/// Bytes a lane's data area may have; a power of two.
pub const DATA: std::ops::RangeInclusive<u32> = 4096..=(16 << 20);

/// Members a region has room for.
pub const MEMBERS: std::ops::RangeInclusive<u32> = 1..=64;

/// Links a region has room for.
pub const LINKS: std::ops::RangeInclusive<u32> = 1..=4096;

/// Units a seat's heap has: their numbers fit into a page.
pub const UNITS: std::ops::RangeInclusive<u32> = 0..=1024;

/// Bytes of a handshake_data in either direction.
pub const HANDSHAKE_DATA: usize = 256;

/// Bytes a peer's heap may have.
pub const HEAP: u64 = 1 << 40;

/// Wake-up bytes read from one socket at a time: a peer that sends more is not given more time.
pub const WAKES: usize = 16;

/// Events taken from the kernel at a time.
pub const EVENTS: usize = 32;
