//! The protocol between the supervisor and a data plane.
//!
//! The data plane of a network opens nothing itself: every socket, tap and eventfd that it uses arrives
//! as a descriptor with an [`Order`]. The data plane reports to the supervisor with an [`Event`]. Both are
//! JSON datagrams on one `SOCK_SEQPACKET` socket pair ([`ControlSocket`]). So the same code runs as a
//! sandboxed process for users and as a thread in tests.

mod counters;
mod lists;
mod row;
mod socket;

use serde::{Deserialize, Serialize};

use crate::guard::Rules;
use crate::mac::Mac;

pub use counters::{Counters, DropReason, Drops};
pub(crate) use lists::PEERS_PER_MESSAGE;
pub use lists::{FdbEntry, RemotePeer};
pub use socket::{ControlSocket, MAX_DATAGRAM};

/// Longest port or network name, in bytes.
pub const MAX_NAME: usize = 64;

/// A port's number in its network. The supervisor chooses the number, and does not reuse it while the
/// port is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u16);

/// A message from the supervisor to the data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Attaches a VM's NIC. Carries one descriptor: the connected vhost-user socket. If the network is
    /// full, the data plane replies with [`Event::Detached`] at once.
    Attach {
        /// The number of the new port.
        port: PortId,
        /// Name in log messages, at most [`MAX_NAME`] bytes.
        name: String,
    },
    /// Attaches an uplink. Carries one descriptor: its tap or socket, or the first of its queues.
    AttachUplink {
        /// The number of the new port.
        port: PortId,
        /// Name in log messages, at most [`MAX_NAME`] bytes.
        name: String,
        /// The kind of the descriptor.
        kind: UplinkKind,
    },
    /// Adds a queue to an uplink. Carries one descriptor, of the same kind as the first. For an AF_XDP
    /// socket, the descriptor is the memory of its frames (UMEM).
    AddUplinkQueue {
        /// The uplink.
        port: PortId,
    },
    /// Detaches a port or uplink; the data plane replies with [`Event::Detached`].
    Detach {
        /// The port.
        port: PortId,
    },
    /// Replaces the rules of a port, at once. The rules belong to the number, whether a port is attached
    /// or not.
    SetRules {
        /// The port.
        port: PortId,
        /// Its rules.
        rules: Box<Rules>,
    },
    /// Pins a MAC address to a port (a static FDB entry): the FDB never learns it at another port, and the
    /// entry does not age. The port need not be attached.
    SetFdbEntry {
        /// The address.
        mac: Mac,
        /// The VLAN; 0 in networks without VLANs.
        #[serde(default)]
        vlan: u16,
        /// The port to which the address is pinned.
        port: PortId,
    },
    /// Removes an entry of [`Order::SetFdbEntry`].
    RemoveFdbEntry {
        /// The address.
        mac: Mac,
        /// The VLAN; 0 in networks without VLANs.
        #[serde(default)]
        vlan: u16,
    },
    /// Turns IGMP and MLD snooping on or off: whether frames of multicast groups go to their members
    /// only. The default is off.
    SetSnooping {
        /// Snooping is on.
        on: bool,
    },
    /// Sets how long the frames of a stream may gather. The default is
    /// [`MODERATION_DELAY`](crate::limits::MODERATION_DELAY).
    SetModerationDelay {
        /// Microseconds, at most [`MAX_MODERATION_DELAY_US`](crate::limits::MAX_MODERATION_DELAY_US); 0 disables gathering.
        micros: u32,
    },
    /// Sets how often each frame's destination is looked up: a measuring aid.
    SetLookUps {
        /// Look-ups, at most [`MAX_LOOK_UPS`](crate::limits::MAX_LOOK_UPS). With 0, the default,
        /// consecutive frames with the same destination share one look-up.
        times: u32,
    },
    /// Captures a port's frames until [`Order::EndCapture`]; the port need not be attached. Carries one
    /// descriptor: a non-blocking datagram socket ([`capture`](crate::capture)).
    Capture {
        /// The port.
        port: PortId,
        /// The number of the new capture.
        capture: u32,
        /// Most bytes to copy of each frame.
        most: u32,
    },
    /// Ends a capture.
    EndCapture {
        /// The port.
        port: PortId,
        /// The capture.
        capture: u32,
    },
    /// Replaces the mirror ports of a port. They belong to the number, whether a port is attached or not.
    Mirror {
        /// The mirrored port.
        port: PortId,
        /// The mirror ports, at most [`MAX_MIRRORS`](crate::limits::MAX_MIRRORS). A mirror port must not
        /// be mirrored itself.
        to: Vec<PortId>,
    },
    /// Requests [`Event::Report`]s of all attached ports and [`Event::RemotePeers`], followed by
    /// [`Event::ReportEnd`].
    Report,
    /// Requests a page of the FDB's entries: an [`Event::FdbEntries`].
    ListFdb {
        /// The slot at which the page begins: 0, or that of the previous page's event.
        from: u32,
    },
    /// Detaches all ports and ends the data plane.
    Stop,
}

/// The kind of an uplink's descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UplinkKind {
    /// A tap opened with `IFF_VNET_HDR`.
    Tap,
    /// A packet socket with `PACKET_VNET_HDR` and `PACKET_AUXDATA`, bound to an interface.
    Packet,
    /// A new AF_XDP socket, bound to an interface. The supervisor sends its UMEM next, with
    /// [`Order::AddUplinkQueue`].
    Xdp(XdpLayout),
}

/// Entries of each ring of an AF_XDP socket.
pub const XDP_ENTRIES: u32 = 1024;

/// Bytes of a chunk of an AF_XDP socket's UMEM.
pub const XDP_CHUNK: u32 = 4096;
/// Chunks of an AF_XDP socket's UMEM.
pub const XDP_CHUNKS: u32 = 2 * XDP_ENTRIES;

/// The kernel's layout of the rings of an AF_XDP socket (`XDP_MMAP_OFFSETS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpLayout {
    /// The ring of received frames.
    pub rx: XdpRing,
    /// The ring of frames to send.
    pub tx: XdpRing,
    /// The ring of chunks for frames to receive.
    pub fill: XdpRing,
    /// The ring of chunks whose frames were sent.
    pub completion: XdpRing,
}

/// Offsets of a ring's producer index, consumer index and entries, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpRing(pub [u32; 3]);

/// Why a port was detached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The supervisor requested it.
    Ordered,
    /// The front-end closed its socket: the VM stopped or is restarting.
    Disconnected,
    /// The guest or its front-end broke the protocol; the text names the rule. The port must be
    /// quarantined before another connection is accepted for it.
    Fault(String),
    /// The host could not serve the port (out of memory or descriptors, network full).
    Host(String),
}

/// A message from the data plane to the supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The guest's driver has started both rings of the first queue pair.
    Running {
        /// The port.
        port: PortId,
    },
    /// The port was detached. No worker uses its descriptors or its memory any more.
    Detached {
        /// The port.
        port: PortId,
        /// Why it was detached.
        reason: Reason,
        /// Its final counters.
        counters: Box<Counters>,
    },
    /// The state of some ports, in reply to [`Order::Report`]; at most [`MAX_REPORTS`] bytes.
    Report(Vec<PortReport>),
    /// Some remote peers; at most 80.
    RemotePeers(Vec<RemotePeer>),
    /// A page of the FDB's entries.
    FdbEntries {
        /// The entries, at most [`FDB_ENTRIES_PER_MESSAGE`](crate::limits::FDB_ENTRIES_PER_MESSAGE).
        entries: Vec<FdbEntry>,
        /// Where the next page begins; absent at the end.
        next: Option<u32>,
    },
    /// The end of a report, with the figures of the workers.
    ReportEnd(WorkerReport),
}

/// A port's state as the data plane sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// The port's number.
    pub port: u16,
    /// Both rings of the first queue pair are running.
    pub running: bool,
    /// Writes into the guest's memory are logged, because the VM migrates.
    pub logging: bool,
    /// Virtio features that the guest negotiated, as bits of the specification; 0 for an uplink.
    pub features: u64,
    /// MTU that the front-end announced, or 0.
    pub mtu: u16,
    /// FDB entries of this port, learnt or pinned.
    pub fdb_entries: u32,
    /// The port is in a storm: it keeps exceeding a flood limit.
    pub storm: bool,
    /// Milliseconds for which the guest has posted no buffer for a frame that waits for it; 0 if none waits.
    #[serde(default)]
    pub stuck_ms: u64,
    /// Running totals since the port was attached.
    #[serde(with = "row")]
    pub counters: Counters,
    /// MAC addresses that this port and another one use.
    #[serde(default)]
    pub duplicates: Vec<DuplicateMac>,
    /// Totals sent to other ports, at most [`MAX_PEERS`](crate::limits::MAX_PEERS) ports.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// Most bytes of the reports of one message, as [`PortReport::most_bytes`] counts them.
pub const MAX_REPORTS: usize = MAX_DATAGRAM - 64;

impl PortReport {
    /// Returns an upper bound of the report's length on the control socket, in bytes.
    pub(crate) fn most_bytes(&self) -> usize {
        const COUNTERS: usize = 1700;
        const LINE: usize = 90;
        COUNTERS + LINE * (self.duplicates.len() + self.peers.len())
    }
}

/// A MAC address that a port and another one use, so that each loses frames to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateMac {
    /// The address.
    pub mac: Mac,
    /// The VLAN; 0 in networks without VLANs.
    pub vlan: u16,
    /// Number of the other port.
    pub port: u16,
    /// Number of moves between the two ports.
    pub moves: u64,
}

/// Totals that a port has sent to another port since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Number of the other port.
    pub port: u16,
    /// Frames.
    pub frames: u64,
    /// Their bytes, without the virtio-net header.
    pub bytes: u64,
}

/// Figures of the workers, as sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Number of wake-ups.
    pub wakeups: u64,
    /// Time-stamp counter ticks spent in rounds that forwarded at least one frame. Zero on machines
    /// without a time-stamp counter.
    pub busy_ticks: u64,
    /// Frames forwarded in those rounds (each frame is counted once, at its sender).
    pub busy_frames: u64,
    /// Time-stamp counter ticks since the network started.
    pub elapsed_ticks: u64,
    /// Entries of the FDB.
    #[serde(rename = "residents")]
    pub fdb_entries: u32,
}
