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

/// Endpoint ids: all that a packet can name but the last, which is refused as no endpoint's.
pub const ENDPOINTS: u8 = 255;

/// Hosts that a node keeps in its table.
pub const HOSTS: usize = 1024;

/// Partners that an endpoint keeps. Ours: a stranger who connects under many names gets no more.
pub const PARTNERS: usize = 4096;

/// Messages that are taken ahead of one that is missing.
pub const EARLY: u16 = 255;

/// Bytes of messages that are kept ahead of one that is missing or not taken yet.
pub const EARLY_BYTES: usize = 1 << 20;

/// Messages that are sent ahead of their acknowledgement. The dialect allows 8191. Half of
/// [`EARLY`], so that notifications, which nothing holds back, are taken by the other side too.
pub const WINDOW: usize = 128;

/// Bytes of messages that are sent ahead of their acknowledgement.
pub const WINDOW_BYTES: usize = 1 << 20;

/// Large messages under way from one endpoint: half of the ids, so that pulls have the others.
pub const REGIONS: usize = 128;

/// Large messages that an endpoint pulls at the same time.
pub const PULLS: usize = 1024;

/// After how many messages an acknowledgement is sent at once; else after [`ACK`].
pub const ACK_AT: u32 = 4;
/// See [`ACK_AT`].
pub const ACK: Duration = Duration::from_micros(15_625);

/// When a connect is sent again that nobody answered; and, at the latest, a packet that nobody
/// acknowledged.
pub const RESEND: Duration = Duration::from_millis(500);

/// When a packet is sent again at the earliest. Ours: some times [`ACK`].
pub const RESEND_FIRST: Duration = Duration::from_millis(50);

/// When a pull asks again that makes no progress, at the latest.
pub const PULL: Duration = Duration::from_secs(1);

/// The same at the earliest. Ours: longer than a host that is busy lets a program wait.
pub const PULL_FIRST: Duration = Duration::from_millis(20);

/// A partner that owes something and is silent for so long is asked whether it is still there.
pub const PROBE: Duration = Duration::from_secs(1);

/// The same of one that owes nothing: somebody may wait for what it would send.
pub const IDLE: Duration = Duration::from_secs(5);

/// How long a peer may be silent that is asked again and again, before it is given up: a thousand
/// times [`RESEND`].
pub const PATIENCE: Duration = Duration::from_secs(500);

/// Bytes of a large message kept while it is sent: twice what is under way, for what was sent may
/// be asked for again.
pub const STREAM: u32 = 2 * BEHIND;

/// Bytes of it that are kept behind the last block that was asked for.
pub const BEHIND: u32 = BLOCK * 4;
const _: () = assert!(BLOCKS == 4, "as many blocks as are under way");

/// Requests of a pull that wait for bytes which are not there yet.
pub const WANTING: usize = 2 * BLOCKS;

/// Connects to endpoints of which it is not known yet whether they are open.
pub const ASKED: usize = 256;

/// When a host is asked again for its name.
pub const QUERY: Duration = Duration::from_secs(5);

/// Announcements: so many this far apart, then one each [`ANNOUNCE_SELDOM`].
pub const ANNOUNCEMENTS: u32 = 8;
/// See [`ANNOUNCEMENTS`].
pub const ANNOUNCE: Duration = Duration::from_secs(1);
/// See [`ANNOUNCEMENTS`].
pub const ANNOUNCE_SELDOM: Duration = Duration::from_secs(180);

/// Frames that wait to be sent to one host, at most: a pull of a few bytes asks for some ten
/// thousand. What is dropped is asked for or sent again. Ours: 16 MiB.
pub const QUEUED: usize = 4096;

/// The same of all hosts together: 64 MiB.
pub const QUEUED_IN_ALL: usize = 4 * QUEUED;

/// How often a host may get another one's place in a table that is full.
pub const REPLACE: Duration = Duration::from_millis(1);

/// How often a host's name may change. Ours: each change is told to every VM.
pub const RENAME: Duration = Duration::from_secs(10);

/// Refusals sent in a second, at most. Ours: the reference has no limit.
pub const NACKS: u32 = 100;

/// Bytes of a host's name, its NUL included.
pub const NAME: usize = 80;
