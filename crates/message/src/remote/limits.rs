//! The limits of links and control messages, and timeouts.

use std::time::Duration;

/// Links of a region. Without heaps, the region is 64 MiB long then, with up to 16 members.
pub(super) const LINKS: u32 = 48;

/// Links of one member at a time.
pub(super) const LINKS_PER_MEMBER: usize = LINKS as usize;

/// Bytes that a link pulls from its peer before the next pull begins: twice what a single pull has in flight, so that
/// there is no pause between two messages.
pub(super) const PULLED_AT_ONCE: u64 = 512 * 1024;

/// Control messages taken from one member before the next one is served.
pub(super) const BURST: usize = 64;

/// The longest pause of a gateway between two polls of its control window.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_millis(100);
