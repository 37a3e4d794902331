//! Every limit of the crate, in one place.

use std::time::Duration;

/// Most payload bytes of a packet that a guest may send. Linux sends at most as many
/// (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`).
pub const MAX_PAYLOAD: u32 = 64 << 10;

/// Chains that are handled in a row, before another ring is served.
pub const BURST: u16 = 64;
const _: () = assert!(BURST as usize == vhost::limits::BATCH);

/// How long handled packets of data may stay unreported to a sender that sends nothing more. A call of the
/// driver costs the guest an interrupt, and in Linux two switches of threads. Within this time another packet
/// of the same conversation usually comes.
pub const REPORT_DELAY: Duration = Duration::from_millis(1);

/// Guests that one process serves.
pub const MAX_GUESTS: usize = 64;

/// Connections that one guest may have initiated at a time. Those that others make to it do not count,
/// so that no guest can take another guest's connections away.
pub const MAX_INITIATED: usize = 8192;

/// Connections between guests and host programs, for each guest.
pub const MAX_HOST_STREAMS: usize = 1024;

/// Time after which a connection request without a response makes room for another one. Linux waits
/// 2 s for the response unless the program chose another time (`VSOCK_DEFAULT_CONNECT_TIMEOUT`).
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Packets of this device that may wait for a guest's receive buffers before the device stops reading
/// the guest's transmit ring.
pub const MAX_REPLIES: usize = 256;

/// Bytes and packets of one sender that the device copies out of the sender's ring, because they wait
/// for one receiver and others wait behind them for another receiver.
pub const MAX_DEFERRED_BYTES: usize = 2 << 20;
/// See [`MAX_DEFERRED_BYTES`].
pub const MAX_DEFERRED_PACKETS: usize = 1024;

/// Time after which connections to a receiver without buffers are reset, while packets for it fill the
/// sender's share of deferred packets.
pub const STUCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Receive space of the device for each connection with a host program (`buf_alloc`).
pub const HOST_BUFFER: u32 = 64 << 10;

/// Host programs that have connected and not sent their `CONNECT` line yet, for each guest.
pub const MAX_HANDSHAKES: usize = 64;

/// Time in which a host program sends its `CONNECT` line.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a call of a guest may block. A front-end can make the call descriptor block, which is a fault.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(20);
