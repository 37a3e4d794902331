//! Sizes, times and limits: those of the dialect that native MX speaks, unless said otherwise.

use std::time::Duration;

/// Longest frame, its MAC header included.
pub const FRAME: usize = 4144;

/// Shortest frame. Shorter ones are filled with zeros.
pub const SHORTEST: usize = 60;

/// Bytes of a tiny message, a small one, and one that is buffered.
pub const TINY: usize = 32;
/// See [`TINY`].
pub const SMALL: usize = 128;
/// See [`TINY`].
pub const MEDIUM: usize = 32 * 1024;

/// Bytes of a fragment of a medium message, and of a reply to a pull: two to the power of
/// [`PIPELINE`].
pub const FRAGMENT: usize = 4096;
/// See [`FRAGMENT`].
pub const PIPELINE: u8 = 12;

/// Replies to one request of a pull.
pub const REPLIES: u32 = 8;

/// Bytes that one request of a pull asks for, at most.
pub const BLOCK: u32 = 32 * 1024;

/// Requests of a pull that are not answered in full yet, at most.
pub const BLOCKS: usize = 4;

/// Endpoint ids. Higher ones are refused as no endpoint's.
pub const ENDPOINTS: u8 = 32;

/// Hosts that a node keeps in its table.
pub const HOSTS: usize = 1024;

/// Partners that an endpoint keeps. Ours: a stranger who connects under many names gets no more.
pub const PARTNERS: usize = 4096;

/// Messages that are taken ahead of one that is missing.
pub const EARLY: u16 = 255;

/// Messages that are sent ahead of their acknowledgement. The dialect allows 8191; more than
/// [`EARLY`] behind a lost one would only be sent again.
pub const WINDOW: usize = 255;

/// Large messages under way from one endpoint: half of the ids, so that pulls have the others.
pub const REGIONS: usize = 128;

/// Large messages that an endpoint pulls at the same time.
pub const PULLS: usize = 1024;

/// After how many messages an acknowledgement is sent at once; else after [`ACK`].
pub const ACK_AT: u32 = 4;
/// See [`ACK_AT`].
pub const ACK: Duration = Duration::from_micros(15_625);

/// When a packet is sent again that nobody acknowledged, and a connect that nobody answered.
pub const RESEND: Duration = Duration::from_millis(500);

/// When a pull asks again that makes no progress.
pub const PULL: Duration = Duration::from_secs(1);

/// How often something is sent again before the peer is given up.
pub const TRIES: u32 = 1000;

/// When a host is asked again for its name.
pub const QUERY: Duration = Duration::from_secs(5);

/// Announcements: so many this far apart, then one each [`ANNOUNCE_SELDOM`].
pub const ANNOUNCEMENTS: u32 = 8;
/// See [`ANNOUNCEMENTS`].
pub const ANNOUNCE: Duration = Duration::from_secs(1);
/// See [`ANNOUNCEMENTS`].
pub const ANNOUNCE_SELDOM: Duration = Duration::from_secs(180);

/// Refusals sent in a second, at most. Ours: the reference has no limit.
pub const NACKS: u32 = 100;

/// Bytes of a host's name, its NUL included.
pub const NAME: usize = 80;
