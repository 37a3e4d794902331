//! Every limit of the link plane, in one place.

use std::time::Duration;

/// Ports one network may have, uplinks included.
pub const MAX_PORTS: usize = 1024;

/// Queue pairs one port may have.
pub const MAX_QUEUE_PAIRS: usize = vhost::limits::MAX_QUEUE_PAIRS;

/// Frames taken from one ring before the next port has its turn.
pub const BURST: u16 = 64;

/// How long a neighbour may take no buffers before frames to it are dropped instead of held.
///
/// Long enough for a VM that waits for a CPU, short enough that nobody notices a dead one.
pub const STUCK_TIMEOUT: Duration = Duration::from_millis(100);

/// Captures of one port at a time: each costs a copy of its frames.
pub const MAX_CAPTURES: usize = 4;

/// Of the time in which a worker has frames to move, captures may cost one part in so many.
pub const CAPTURE_SHARE: i64 = 512;

/// What captures may cost at a time, where a worker had time for them before.
pub const CAPTURE_BURST: Duration = Duration::from_millis(2);

/// Ports that one port's frames are mirrored to.
pub const MAX_MIRRORS: usize = 4;

/// Frames of one transmit ring that may be set aside for slow receivers.
pub const DEFERRED_FRAMES: usize = 256;

/// Their bytes: sixteen of the largest frames.
pub const DEFERRED_BYTES: usize = 1 << 20;

/// Longest time that calling a guest may take: its front-end may have made the call descriptor
/// block, and is at fault then. Much shorter than [`STUCK_TIMEOUT`]: nobody else may be taken for stuck
/// because of it.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(20);

/// Of so many bursts of a ring, the latency of one is measured: reading the clock costs as much as a
/// small frame.
pub const LATENCY_SAMPLE: u32 = 8;

/// Ports to which what one sends is counted apart: fields of its row in the traffic matrix.
pub const MAX_PEERS: usize = 64;

/// Addresses a network can know.
pub const MAX_FDB_ENTRIES: usize = 100_000;

/// Addresses one VM's port may teach the table, so that no guest can fill it.
pub const MAX_LEARNT_PER_PORT: u32 = 1024;

/// Seconds after which an address that was not heard of is forgotten (IEEE 802.1Q, 8.8.3).
pub const AGEING: u32 = 300;

/// An address that moves so often within [`DUPLICATE_SECONDS`] is used by two ports (RFC 7432, 15.1).
pub const DUPLICATE_MOVES: u32 = 5;

/// Seconds within which moves count, and after which an address that no longer moves has one owner.
pub const DUPLICATE_SECONDS: u32 = 180;

/// Addresses of a network that are watched as they move.
pub const MAX_DUPLICATES: usize = 64;

/// Seconds on end for which a port is over a limit on its floods before that counts as a storm.
pub const STORM: u32 = 5;

/// Seconds without any excess that end a storm. The supervisor looks every 15, so it misses none.
pub const CALM: u32 = 20;

/// Multicast groups one port may be in before it gets the frames of all.
pub const MAX_GROUPS_PER_PORT: usize = 256;

/// Memberships of all ports of a network that are remembered.
pub const MAX_MEMBERSHIPS: usize = 16_384;

/// Seconds for which a report of a group counts (RFC 3376, 8.4).
pub const MEMBERSHIP: u32 = 260;

/// Seconds for which a question of a router counts (RFC 3376, 8.5).
pub const QUERIER: u32 = 255;

/// Seconds that hosts have left to say that they are in a group which one has left (RFC 3376, 8.8).
pub const LEAVE: u32 = 2;

/// Seconds between two looks for what is over.
pub const SWEEP: u32 = 16;

/// Messages handled for one front-end before the others have their turn.
pub const MESSAGES_PER_TURN: usize = 16;

/// Busy rounds between two looks at the event queue.
pub const ROUNDS_PER_POLL: u32 = 8;

/// How often rings without a kick descriptor are looked at while the worker sleeps.
pub const POLL: Duration = Duration::from_millis(1);

/// Longest time to look for more work before sleeping.
pub const SPIN: Duration = Duration::from_micros(20);

/// How long frames of a thin stream gather, where looking for them would burn a core: 8,000
/// wake-ups a second, as network cards do for streams.
pub const MODERATION_SLEEP: Duration = Duration::from_micros(125);

/// How long frames of a stream gather before the worker looks, while CPUs are short, unless the
/// network is told otherwise.
pub const GATHER: Duration = Duration::from_micros(GATHER_US as u64);

/// The same in microseconds.
pub const GATHER_US: u32 = 200;

/// The most it can be told. Longer than that, and TCP takes it for congestion.
pub const MAX_GATHER_US: u32 = 10_000;

/// Look-ups of each frame that a network can be told to make.
pub const MAX_LOOK_UPS: u32 = 1000;

/// Frames a ring must have brought since the worker last slept to count as a stream. Fewer may be
/// requests that somebody waits for.
pub const STREAM: u32 = 4;

/// Above this share of a ring since the worker last slept, frames come so fast that they gather
/// by themselves, and waiting could fill the ring: a quarter.
pub const GATHER_SHARE: u32 = 4;
