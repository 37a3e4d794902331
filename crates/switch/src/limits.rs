//! Every limit of the link plane, in one place.

use std::time::Duration;

/// Ports one network may have, uplinks included.
pub const MAX_PORTS: usize = 1024;

/// Queue pairs one port may have.
pub const MAX_QUEUE_PAIRS: usize = vhost::limits::MAX_QUEUE_PAIRS;

/// Frames that a worker takes from one ring before it serves the next ring.
pub const BURST: u16 = 64;

/// How long a receiver may post no buffers before frames to it are dropped instead of waiting.
///
/// A CPU quota of the host (`cpu.max`, libvirt's `<quota>`) may stop a VM for 90 of each 100 ms, and the
/// guest may use a whole share for other work before it refills its ring. So the time is two such periods
/// and a half. It is short enough that a VM that hangs disturbs its senders only for a moment.
pub const STUCK_TIMEOUT: Duration = Duration::from_millis(250);

/// Captures of one port at a time. Each copies the port's frames.
pub const MAX_CAPTURES: usize = 4;

/// Captures may use 1/512 of the time in which a worker is busy.
pub const CAPTURE_SHARE: i64 = 512;

/// The most CPU time that the capture budget accumulates.
pub const CAPTURE_BURST: Duration = Duration::from_millis(2);

/// Mirror ports of one port.
pub const MAX_MIRRORS: usize = 4;

/// Frames of one transmit ring that may be deferred for slow receivers.
pub const DEFERRED_FRAMES: usize = 256;

/// Bytes of the deferred frames of one transmit ring: sixteen of the largest frames.
pub const DEFERRED_BYTES: usize = 1 << 20;

/// How long a call of a guest may block. A front-end can make the call descriptor block, which is a
/// fault. Much shorter than [`STUCK_TIMEOUT`], so that other receivers do not appear stuck meanwhile.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(20);

/// The latency of one in eight bursts of a ring is measured: reading the clock costs as much as
/// forwarding a small frame.
pub const LATENCY_SAMPLE: u32 = 8;

/// Entries of one port's row in the traffic matrix: destination ports with counters of their own.
pub const MAX_PEERS: usize = 64;

/// Remote peers of one port: MAC addresses behind an uplink with counters of their own.
pub const MAX_REMOTE_PEERS: usize = 64;

/// Remote peers of all ports of a network in a report.
pub const MAX_REPORTED_REMOTE_PEERS: usize = 1024;

/// Entries of the FDB in one message of a list.
pub const FDB_ENTRIES_PER_MESSAGE: usize = 100;

/// Entries of a network's FDB.
pub const MAX_FDB_ENTRIES: usize = 100_000;

/// Addresses that the FDB learns from one VM's port, so that no guest can fill the table.
pub const MAX_LEARNT_PER_PORT: u32 = 1024;

/// Ageing time in seconds: a learnt entry is removed when its address sends nothing for this long
/// (IEEE 802.1Q, 8.8.3).
pub const AGEING: u32 = 300;

/// An address that moves this often within [`DUPLICATE_SECONDS`] is a duplicate: two ports use it
/// (RFC 7432, 15.1).
pub const DUPLICATE_MOVES: u32 = 5;

/// Seconds within which moves count, and after which an address without moves is no longer a duplicate.
pub const DUPLICATE_SECONDS: u32 = 180;

/// Moving addresses that a network tracks.
pub const MAX_DUPLICATES: usize = 64;

/// A port is in a storm after it exceeds a flood limit in this many consecutive seconds.
pub const STORM_SECONDS: u32 = 5;

/// Seconds without excess that end a storm. The supervisor requests a report every 15 s, so it sees
/// every storm.
pub const STORM_CLEAR_SECONDS: u32 = 20;

/// Multicast groups of one port. A port in more groups gets the frames of all groups.
pub const MAX_GROUPS_PER_PORT: usize = 256;

/// Group memberships of all ports of a network.
pub const MAX_MEMBERSHIPS: usize = 16_384;

/// Seconds after which a membership expires without another report (RFC 3376, 8.4).
pub const MEMBERSHIP: u32 = 260;

/// Seconds after which a querier expires without another query (RFC 3376, 8.5).
pub const QUERIER: u32 = 255;

/// Seconds for which a port stays in a group after a host has left it, so that other hosts behind the
/// port can report their membership (RFC 3376, 8.8).
pub const LEAVE: u32 = 2;

/// Seconds between two removals of expired memberships.
pub const SWEEP: u32 = 16;

/// Messages of one front-end that the first worker handles before those of the next one.
pub const MESSAGES_PER_ROUND: usize = 16;

/// Busy rounds between two reads of the epoll set.
pub const ROUNDS_PER_POLL: u32 = 8;

/// How often a sleeping worker polls rings without a kick descriptor.
pub const POLL: Duration = Duration::from_millis(1);

/// Longest time that a worker busy-polls before it sleeps.
pub const SPIN: Duration = Duration::from_micros(20);

/// How long a worker sleeps while it moderates a stream with a low rate, which would otherwise keep it
/// polling: 8,000 wake-ups a second, like the interrupt moderation of network cards.
pub const MODERATION_SLEEP: Duration = Duration::from_micros(125);

/// How long frames of a stream gather before the worker polls, while CPUs are contended. The default of
/// [`Order::SetModerationDelay`](crate::control::Order::SetModerationDelay).
pub const MODERATION_DELAY: Duration = Duration::from_micros(MODERATION_DELAY_US as u64);

/// The same in microseconds.
pub const MODERATION_DELAY_US: u32 = 200;

/// The longest gathering time that can be configured, in microseconds. TCP takes a longer delay for
/// congestion.
pub const MAX_MODERATION_DELAY_US: u32 = 10_000;

/// The highest number of FDB look-ups per frame that can be configured (a measuring aid).
pub const MAX_LOOK_UPS: u32 = 1000;

/// Frames that a ring must have sent since the worker last slept to count as a stream. Fewer frames may
/// be requests whose sender waits for the answer.
pub const STREAM: u32 = 4;

/// If a ring has sent more than a quarter of its size since the worker last slept, its frames arrive so
/// fast that they gather without a delay, and a delay could fill the ring.
pub const MODERATION_MAX_SHARE: u32 = 4;
