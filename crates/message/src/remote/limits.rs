//! Limits of links and notes, and timeouts.

use std::time::Duration;

/// Links of a region. It is 64 MiB long then, with up to 16 seats, where there are no heaps.
pub(super) const LINKS: u32 = 48;

/// Links of one member at a time.
pub(super) const LEGS: usize = LINKS as usize;

/// Notes taken from one trunk before the next has its turn.
pub(super) const BURST: usize = 64;

/// A gateway whose beat has not changed for so long is no more.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Longest pause of a gateway between two looks at its trunk.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
