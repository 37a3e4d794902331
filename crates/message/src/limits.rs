//! Sizes and limits of the message plane.

use std::time::Duration;

use window::lane;
use window::layout::LaneSize;

/// Polls that found nothing between two reads of the clock, at most.
pub(crate) const POLLS_PER_CLOCK_READ: u32 = 32;

/// Bytes of an eager message, which is inside a record.
pub const EAGER: usize = 48;

/// Words of a message that shares a slot with another one.
pub const SHORT_WORDS: usize = lane::SHORT_WORDS;

/// Messages that a program reads in place at once, at most.
pub const READ_AT_ONCE: usize = 16;

/// The longest medium message in bytes: the send is buffered and may complete before the receiver
/// posts a receive. The bound of MX.
pub const MEDIUM: u64 = 32 * 1024;

/// The longest medium message in bytes with a [credit](CREDITS): a quarter of the data area, so that a sender copies in while the receiver
/// copies out.
pub const MEDIUM_WITH_CREDIT: u64 = 64 * 1024;

/// Messages that a receiver lets the sender send without an offer, with each message that it asks to be streamed: a few times as many as
/// benchmarks send at once, and as many bytes as of [unexpected](UNEXPECTED) messages.
pub const CREDITS: u32 = 256;

/// Messages that a sender sends with credits before it offers one, whose pull renews the credits: as many as benchmarks send at once. A sender that
/// used all credits first would offer all that it has to send until the next pull.
pub const OFFER_AFTER: u32 = 64;

/// Bytes of a chunk of a streamed message.
pub const CHUNK: u32 = 32 * 1024;

/// The shortest message in bytes that both sides copy, where both can.
pub const SHARED: u64 = 256 * 1024;

/// Bytes of a piece that one side claims and copies.
pub const PIECE: u64 = 128 * 1024;

/// Messages that two processes copy together by one call of the kernel, at most.
pub const COPIED_TOGETHER: usize = 8;

/// The message lane. Several medium messages fit, however much is skipped at the end.
pub const MESSAGES: LaneSize = LaneSize {
    slots: 256,
    data: 256 * 1024,
};

/// The lane of control records and streamed data. More slots than chunks fit.
pub const CONTROL: LaneSize = LaneSize {
    slots: 64,
    data: 256 * 1024,
};

/// Segments of one message.
pub const SEGMENTS: usize = 256;

/// Bits of a context id.
pub const CONTEXT_BITS: u8 = 16;

/// Endpoint ids that are tried for an endpoint without a given id.
pub const ENDPOINTS: u32 = 256;

/// Bytes of unexpected messages of one peer, each counted with [`UNEXPECTED_OVERHEAD`] on top. No
/// messages are taken from a peer above the limit until some are received.
pub const UNEXPECTED: u64 = 16 << 20;

/// Bytes that an unexpected message counts beside its length.
pub const UNEXPECTED_OVERHEAD: u64 = 128;

/// Control records that wait because a peer does not take them. No messages are taken from the peer
/// meanwhile.
pub const CONTROL_WAITING: usize = 1024;

/// Records taken from one peer before the next peer is served, and before a waiting program can
/// post its next receives: messages that arrive before these cost another copy.
pub const BURST: usize = 16;

/// Chunks streamed to one peer before the next peer is served.
pub const CHUNKS: usize = 32;

/// Accepted connections without an offer. If there are more, the oldest is closed.
pub const INCOMING: usize = 64;

/// How long a connect that was refused in favour of the peer's own waits for that: the peer's offer
/// may have to pass the gateways of two VMs, which poll.
pub const SIMULTANEOUS_RETRY: Duration = Duration::from_millis(200);

/// How long a connect by datagrams may take before the daemons carry the link. The other program may wait for a processor.
pub const DATAGRAMS_TIMEOUT: Duration = Duration::from_secs(3);

/// Peers that are expected by datagrams at a time: as many as a table of MXoE has for a host's endpoints.
pub const EXPECTED: usize = 1024;

/// Lost peers whose address is kept.
pub const MAX_LOST_PEERS: usize = 256;

/// Bytes of an endpoint's heap. Only pages that are written take memory.
pub const HEAP: u64 = 1 << 30;

/// How long an endpoint that waits for a peer's reply polls before it sleeps: about the time to copy
/// some MB. Sleeping meanwhile would interrupt the processor that copies, and the waiter would run
/// again only some time after the copy is done. The other polling times are
/// [measured](window::calibration::Thresholds).
pub const TRANSFER_SPIN: Duration = Duration::from_micros(500);

/// The same for an endpoint that waits for a remote peer's reply. A peer's virtual CPU may lose its
/// processor for some milliseconds in the middle of a message. An endpoint that sleeps meanwhile is
/// woken late, by two gateways that poll; until then the other side waits and sleeps as well, and
/// so both go on sleeping. An endpoint that loses its own processor meanwhile, or whose host is
/// overcommitted, sleeps earlier.
pub const REMOTE_TRANSFER_SPIN: Duration = Duration::from_millis(20);

/// How long a program that polls sleeps where processors are scarce: a few times what a message takes to
/// another VM under emulation, and what the program's other transports are delayed at most.
pub(crate) const POLL_SLEEP: Duration = Duration::from_micros(50);

/// How long a program polls without success before it sleeps, and between two such sleeps. So they take half of its
/// time from its other transports, at most.
pub(crate) const POLLING_BEFORE_SLEEP: Duration = Duration::from_micros(100);
pub(crate) const POLLING_BETWEEN_SLEEPS: Duration = Duration::from_micros(50);

/// About how long a program polls between two reads of the clock, if a poll takes long.
pub(crate) const POLLING_BETWEEN_CLOCK_READS: Duration = Duration::from_micros(100);

/// The least time without a poll that shows that another program had the processor: less than a time slice,
/// and more than interrupts take.
pub(crate) const PREEMPTION: Duration = Duration::from_micros(300);

/// A program whose polls are usually further apart than this computes between them.
pub(crate) const DENSE_POLLS: Duration = Duration::from_micros(200);

/// How long processors count as scarce after a program has lost its own.
pub(crate) const CPU_LOSS_LASTS: Duration = Duration::from_millis(100);

/// Polls of an endpoint without remote peers between two polls of the plane of its process.
pub(crate) const POLLS_PER_CONNECT_CHECK: u32 = 32;

/// Polls of shared memory alone between two polls of the sockets for connects and ended peers.
pub const POLLS_PER_SOCKET_CHECK: u32 = 1024;
