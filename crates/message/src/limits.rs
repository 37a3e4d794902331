//! Sizes and limits of the message plane.

use std::time::Duration;

use window::layout::LaneSize;

/// Bytes that travel inside a record.
pub const EAGER: usize = 48;

/// Bytes up to which a send is buffered: it may complete before anybody receives. The bound of MX.
pub const MEDIUM: u64 = 32 * 1024;

/// Bytes in which a large message without window memory is streamed.
pub const CHUNK: u32 = 16 * 1024;

/// Bytes from which a message is copied by both sides, where both can.
pub const SHARED: u64 = 256 * 1024;

/// Bytes that a side copies of it at a time.
pub const PIECE: u64 = 128 * 1024;

/// The lane of messages. Several medium messages fit, whatever is skipped at the end.
pub const MESSAGES: LaneSize = LaneSize {
    slots: 256,
    data: 256 * 1024,
};

/// The lane of control and streamed data. Twice the slots of the chunks that fit.
pub const CONTROL: LaneSize = LaneSize {
    slots: 64,
    data: 256 * 1024,
};

/// Segments of one message.
pub const SEGMENTS: usize = 256;

/// Bits of a context id.
pub const CONTEXT_BITS: u8 = 16;

/// Endpoint ids that are tried for an endpoint that takes any.
pub const ENDPOINTS: u32 = 256;

/// Bytes of messages of one peer that nobody waits for, each counted with [`UNEXPECTED_OVERHEAD`] on top. A
/// peer that sends more is not listened to until some are received.
pub const UNEXPECTED: u64 = 16 << 20;

/// What a message that nobody waits for costs beside its bytes.
pub const UNEXPECTED_OVERHEAD: u64 = 128;

/// Control records that wait because a peer does not take them. It is not listened to meanwhile.
pub const CONTROL_WAITING: usize = 1024;

/// Records taken from one peer before the next one has its turn, and before a program that waits
/// can post its next receives: what comes before these costs another copy.
pub const BURST: usize = 16;

/// Chunks streamed to one peer before the next one has its turn.
pub const CHUNKS: usize = 64;

/// Connections that have not said yet what they want. The first of more is closed.
pub const INCOMING: usize = 64;

/// How long a connect that gave way to the other side's waits for that: it may have to pass the gateways of two
/// VMs, which look now and then.
pub const SIMULTANEOUS_RETRY: Duration = Duration::from_millis(200);

/// Peers that are gone and can still be asked for their address.
pub const REMEMBERED: usize = 256;

/// Bytes of an endpoint's heap. Only pages that are written take memory.
pub const HEAP: u64 = 1 << 30;

/// How long a waiter looks before it sleeps: about what falling asleep and waking up costs.
pub const SPIN: Duration = Duration::from_micros(20);

/// The same of an endpoint that is owed an answer: for what copying some MB takes. Who sleeps
/// meanwhile interrupts the processor that copies, and is awake again only some time after that is
/// done.
pub const TRANSFER_SPIN: Duration = Duration::from_micros(500);

/// The same of an endpoint with a peer that is far: there, waking up takes a gateway on each side.
pub const REMOTE_SPIN: Duration = Duration::from_millis(1);

/// The same of one with a far peer that is owed an answer. A peer's virtual CPU may lose its processor for
/// some milliseconds in the middle of a message. Whoever sleeps meanwhile is woken late, by two gateways that
/// look now and then; until then the other side waits, and sleeps as well: once begun, that goes on.
pub const REMOTE_TRANSFER_SPIN: Duration = Duration::from_millis(20);

/// Calls that look only at memory between two that ask the kernel for connections and deaths.
pub const POLLS_PER_SOCKET_CHECK: u32 = 1024;
