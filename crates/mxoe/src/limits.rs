//! Sizes, intervals and limits. They are those of native MX's dialect of MXoE, unless a comment
//! says that Vicinity chose the value.

use std::time::Duration;

/// Length of the longest frame in bytes, including its MAC header: one with [`LARGE_FRAGMENT`].
pub const MAX_FRAME: usize = 8240;

/// Length of the longest frame of the dialect, with [`FRAGMENT`]: each interface must carry it.
pub const MAX_ORDINARY_FRAME: usize = 4144;

/// Length of the shortest frame in bytes. The encoder pads shorter frames with zeros.
pub const MIN_FRAME: usize = 60;

/// Bytes of the longest tiny message.
pub const MAX_TINY: usize = 32;
/// Bytes of the longest small message.
pub const MAX_SMALL: usize = 128;
/// Bytes of the longest medium message, which the sender transmits without a pull.
pub const MAX_MEDIUM: usize = 32 * 1024;

/// Bytes of a fragment of a medium message and of a reply to a pull: two to the power of
/// [`PIPELINE`].
pub const FRAGMENT: usize = 4096;
/// Binary logarithm of [`FRAGMENT`], as fragments carry it.
pub const PIPELINE: u8 = 12;

/// Bytes of a fragment or reply between two hosts of Vicinity, where the path carries it. Open-MX, too, has replies of this
/// length where it need not be compatible with MX.
pub const LARGE_FRAGMENT: usize = 8192;
/// Binary logarithm of [`LARGE_FRAGMENT`].
pub const LARGE_PIPELINE: u8 = 13;

/// Probes without an answer after which a path counts as one without large frames. MAX_PROBES of RFC 8899, section 5.1.2.
pub const PATH_PROBES: u32 = 3;

/// Retransmissions of a message in large fragments, after each of which it was not acknowledged, before the path is probed
/// again. Chosen by Vicinity: the receiver's program may just not take it, and a lost large frame alone is no reason either.
pub const LARGE_RETRIES: u32 = 3;

/// Requests of a pull for blocks that were requested before, without a new one in between, after which the path is probed
/// again: some rounds of all blocks in flight.
pub const LARGE_REPEATS: u32 = 16;

/// Replies to one request of a pull, if each has [`FRAGMENT`].
pub const REPLIES_PER_REQUEST: u32 = 8;

/// Bytes that one request of a pull asks for, at most.
pub const PULL_BLOCK: u32 = 32 * 1024;

/// Requests of a pull that are in flight at the same time, at most.
pub const PULL_BLOCKS: usize = 4;

/// The same with a host of Vicinity that takes large frames: its sender keeps the bytes of so many blocks ([`STREAM_HISTORY`]). The
/// programs of both sides and the uplinks between them each move what is there and then wait for the next one, so four
/// blocks leave them idle for half of the time (measured with 1 MiB between ranks of MPI).
pub const PULL_BLOCKS_LARGE: usize = 8;

/// The same with a host that may send its replies in datagrams, which takes less time for each: 1.1 to 1.5 times the bandwidth of 8 blocks
/// (measured as above).
pub const PULL_BLOCKS_UDP: usize = 16;

/// Programs of partners that a node knows whose frames all travel in datagrams. Chosen by Vicinity.
pub const PROGRAMS: usize = 1024;

/// Time for which such a program keeps its place in the full table, although no endpoint uses it: the introduction and the connect that
/// follows it have ended by then. Chosen by Vicinity.
pub const PROGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Number of endpoint ids. A packet could also name id 255, which a node refuses because no
/// endpoint has it.
pub const ENDPOINTS: u8 = 255;

/// Hosts in the table of a node.
pub const HOSTS: usize = 1024;

/// Partners of an endpoint. Chosen by Vicinity: a host that connects under many addresses gets no
/// more.
pub const PARTNERS: usize = 4096;

/// Messages that a receiver accepts ahead of a missing one.
pub const RECEIVE_WINDOW: u16 = 255;

/// Bytes of messages that a receiver keeps ahead of one that is missing or that the program has not
/// taken yet.
pub const RECEIVE_WINDOW_BYTES: usize = 1 << 20;

/// Messages that a sender has in flight without an acknowledgement. The dialect allows 8191. This
/// is half of [`RECEIVE_WINDOW`], so that the receiver also accepts notifications, which no window
/// holds back.
pub const SEND_WINDOW: usize = 128;

/// Bytes of messages that a sender has in flight without an acknowledgement before it sends no further message. With the last
/// one, they are not more than a receiver keeps while its program takes none.
pub const SEND_WINDOW_BYTES: usize = RECEIVE_WINDOW_BYTES - MAX_MEDIUM;

/// Large messages that an endpoint offers at the same time: half of the region ids, so that the
/// other half is free for pulls.
pub const REGIONS: usize = 128;

/// Large messages that an endpoint pulls at the same time.
pub const PULLS: usize = 1024;

/// Number of messages after which the receiver acknowledges at once.
pub const ACK_EVERY: u32 = 4;
/// Longest time that the receiver delays an acknowledgement of fewer messages than [`ACK_EVERY`].
pub const ACK_DELAY: Duration = Duration::from_micros(15_625);

/// Time until an unanswered connect is sent again. Also the longest time until an unacknowledged
/// packet is sent again.
pub const RESEND_TIMEOUT: Duration = Duration::from_millis(500);

/// Shortest time until an unacknowledged packet is sent again. Chosen by Vicinity: several times
/// [`ACK_DELAY`].
pub const RESEND_TIMEOUT_MIN: Duration = Duration::from_millis(50);

/// Longest time until a pull without progress repeats its requests.
pub const PULL_TIMEOUT: Duration = Duration::from_secs(1);

/// Shortest time until a pull without progress repeats its requests. Chosen by Vicinity: longer
/// than a busy host delays a program.
pub const PULL_TIMEOUT_MIN: Duration = Duration::from_millis(20);

/// Silence of a partner after which the node probes it, while a transfer or an acknowledgement is
/// outstanding.
pub const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Silence of a partner after which the node probes it although nothing is outstanding: a program
/// may be waiting for a message from that partner.
pub const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Silence of a probed partner after which the node gives the partner up: a thousand times
/// [`RESEND_TIMEOUT`].
pub const PEER_TIMEOUT: Duration = Duration::from_secs(500);

/// Bytes of a streamed message that the sender buffers: twice what is in flight, because the
/// receiver may request a lost block again.
pub const STREAM_BUFFER: u32 = 2 * STREAM_HISTORY;

/// Bytes that the sender keeps before the last block that the receiver requested.
pub const STREAM_HISTORY: u32 = PULL_BLOCK * 16;
const _: () = assert!(
    PULL_BLOCKS_UDP == 16,
    "the history covers the blocks in flight"
);

/// Buffers of large messages that a node keeps for the next ones: of [`STREAM_BUFFER`] bytes each, at most. Chosen by Vicinity.
pub const SPARE_BUFFERS: usize = 16;

/// Requests of a pull that wait for bytes that the program has not supplied yet.
pub const PENDING_REQUESTS: usize = 2 * PULL_BLOCKS_UDP;

/// Connect requests that wait until the program opens or refuses their endpoint.
pub const PENDING_CONNECTS: usize = 256;

/// Time until a host that has not reported its name is queried again.
pub const QUERY_INTERVAL: Duration = Duration::from_secs(5);

/// Number of announcements that a starting node sends [`ANNOUNCE_INTERVAL`] apart. Later
/// announcements are [`ANNOUNCE_INTERVAL_IDLE`] apart.
pub const ANNOUNCEMENTS: u32 = 8;
/// Interval of the first [`ANNOUNCEMENTS`] announcements.
pub const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of all later announcements.
pub const ANNOUNCE_INTERVAL_IDLE: Duration = Duration::from_secs(180);

/// Frames that wait to be sent to one host, at most: a pull request of a few bytes can ask for some
/// ten thousand frames. The protocol recovers dropped frames by requests and retransmissions.
/// Chosen by Vicinity: 16 MiB, or twice as much in large frames.
pub const SEND_QUEUE: usize = 4096;

/// Frames that wait to be sent to all hosts together: 64 MiB, or twice as much.
pub const SEND_QUEUE_TOTAL: usize = 4 * SEND_QUEUE;

/// Shortest interval between two replacements of an entry in a full table.
pub const REPLACE_INTERVAL: Duration = Duration::from_millis(1);

/// Shortest interval between two changes of a host's name. Chosen by Vicinity: the broker
/// passes each change to every VM.
pub const RENAME_INTERVAL: Duration = Duration::from_secs(10);

/// Refusals that a node sends in a second, at most. Chosen by Vicinity: the reference
/// implementation has no limit.
pub const NACKS_PER_SECOND: u32 = 100;

/// Bytes of a host's name, including its NUL.
pub const NAME_BYTES: usize = 80;
