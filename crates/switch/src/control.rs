//! What the supervisor and a data plane say to each other.
//!
//! The data plane of a network reaches for nothing itself: every socket, tap and event
//! descriptor it uses comes to it as an [`Order`] with a descriptor attached, and everything
//! the supervisor knows about it came back as an [`Event`]. Both travel as JSON datagrams over
//! one `SOCK_SEQPACKET` socket pair ([`ControlSocket`]), so a data plane is a sandboxed process
//! for users and a thread for tests without either side noticing.

mod counters;
mod row;
mod socket;

use serde::{Deserialize, Serialize};

use crate::guard::Rules;
use crate::mac::Mac;

pub use counters::{Counters, Drops, Loss};
pub use socket::{ControlSocket, MAX_DATAGRAM};

/// Longest port or network name, in bytes.
pub const MAX_NAME: usize = 64;

/// A port's number inside its network. The supervisor chooses it and never reuses one that is
/// still attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PortId(pub u16);

/// Supervisor to data plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Start serving a VM's NIC. Carries one descriptor: the connected vhost-user socket.
    /// Answered by [`Event::Detached`] at once when the network is full.
    Attach {
        /// The number the port will be known by.
        port: PortId,
        /// Name for log lines, at most [`MAX_NAME`] bytes.
        name: String,
    },
    /// Start serving an uplink. Carries one descriptor: where its frames go out and come in, or the
    /// first of its queues.
    AttachUplink {
        /// The number the uplink will be known by.
        port: PortId,
        /// Name for log lines, at most [`MAX_NAME`] bytes.
        name: String,
        /// What the descriptor is.
        way: UplinkWay,
    },
    /// Serve one more queue of an uplink. Carries one descriptor, of the same kind as the first; for a
    /// socket of AF_XDP, its memory of frames.
    AddUplinkQueue {
        /// Which one.
        port: PortId,
    },
    /// Stop serving a port or uplink; answered by [`Event::Detached`].
    Detach {
        /// Which one.
        port: PortId,
    },
    /// What a port may send and receive, in place of what was said before. In force at once;
    /// kept for the number, whether it is attached or not.
    SetRules {
        /// Which one.
        port: PortId,
        /// Its rules.
        rules: Box<Rules>,
    },
    /// Pin a MAC address to a port: it is never learnt elsewhere and never ages.
    /// An entry for a port that is not attached is kept and used once it is.
    SetResidency {
        /// The resident's address.
        mac: Mac,
        /// In which VLAN; 0 where there are none.
        #[serde(default)]
        vlan: u16,
        /// Where it lives.
        port: PortId,
    },
    /// Undo [`Order::SetResidency`].
    ClearResidency {
        /// The resident's address.
        mac: Mac,
        /// In which VLAN; 0 where there are none.
        #[serde(default)]
        vlan: u16,
    },
    /// Whether frames of multicast groups go to those alone who asked for them; they do not unless
    /// it is said.
    SetSnooping {
        /// They do.
        on: bool,
    },
    /// How long the frames of a stream may gather, in place of
    /// [`GATHER`](crate::limits::GATHER).
    SetGather {
        /// Microseconds, at most [`MAX_GATHER_US`](crate::limits::MAX_GATHER_US); 0 for never.
        micros: u32,
    },
    /// How often each frame's destination is looked up: a measuring aid.
    SetLookUps {
        /// Times, at most [`MAX_LOOK_UPS`](crate::limits::MAX_LOOK_UPS); 0 for once for frames in a
        /// row with the same destination, as it is unless it is said.
        times: u32,
    },
    /// Show a port's frames, whether it is attached or comes later, until it is ended. Carries one
    /// descriptor: a non-blocking socket of datagrams ([`capture`](crate::capture)).
    Capture {
        /// Which one.
        port: PortId,
        /// The number the capture will be known by.
        capture: u32,
        /// Bytes to show of each frame, at most.
        most: u32,
    },
    /// Undo [`Order::Capture`].
    EndCapture {
        /// Of which port.
        port: PortId,
        /// Which one.
        capture: u32,
    },
    /// Copy a port's frames to these ports, and to no others; kept for the number, whether it is
    /// attached or not.
    Mirror {
        /// Whose frames.
        port: PortId,
        /// The mirror ports, at most [`MAX_MIRRORS`](crate::limits::MAX_MIRRORS). None of them is
        /// mirrored itself.
        to: Vec<PortId>,
    },
    /// Ask for [`Event::Report`]s of all attached ports, then [`Event::ReportEnd`].
    Report,
    /// Detach everything and return.
    Stop,
}

/// What an uplink's frames go out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UplinkWay {
    /// A tap opened with `IFF_VNET_HDR`.
    Tap,
    /// A packet socket with `PACKET_VNET_HDR` and `PACKET_AUXDATA`, bound to an interface.
    Packet,
    /// A new socket of AF_XDP, bound to an interface. Its memory of frames comes next, by
    /// [`Order::AddUplinkQueue`].
    Xdp(XdpLayout),
}

/// Entries of each ring of a socket of AF_XDP.
pub const XDP_ENTRIES: u32 = 1024;

/// Bytes of a chunk of its memory of frames, and how many there are.
pub const XDP_CHUNK: u32 = 4096;
/// See [`XDP_CHUNK`].
pub const XDP_CHUNKS: u32 = 2 * XDP_ENTRIES;

/// How the kernel lays out the rings of a socket of AF_XDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpLayout {
    /// Frames that came in.
    pub rx: XdpRing,
    /// Frames that go out.
    pub tx: XdpRing,
    /// Chunks for frames to come in.
    pub fill: XdpRing,
    /// Chunks of frames that have gone out.
    pub completion: XdpRing,
}

/// Where a ring has its producer's index, its consumer's index and its entries, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpRing(pub [u32; 3]);

/// Why a port is no longer served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// The supervisor asked for it.
    Asked,
    /// The front-end closed its socket: the VM stopped or is restarting.
    Gone,
    /// The guest or its front-end broke the rules; the text says which and how. The port must
    /// be quarantined before another connection is accepted for it.
    Fault(String),
    /// The host could not serve it (out of memory or descriptors, network full).
    Host(String),
}

/// Data plane to supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The guest's driver has started both rings of the first queue pair.
    Running {
        /// Which port.
        port: PortId,
    },
    /// The port is no longer served; its descriptors are closed and its memory unmapped.
    Detached {
        /// Which port.
        port: PortId,
        /// Why.
        reason: Reason,
        /// Its counters at the end.
        counters: Box<Counters>,
    },
    /// The state of some ports, in answer to [`Order::Report`]: not more than [`MAX_REPORTS`] have
    /// room.
    Report(Vec<PortReport>),
    /// The end of a report, with the figures that belong to no port.
    ReportEnd(WorkerReport),
}

/// A port's state as the data plane sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortReport {
    /// Number of the port.
    pub port: u16,
    /// Both rings of the first queue pair are running.
    pub running: bool,
    /// Writes into the guest's memory are logged: it migrates.
    pub logging: bool,
    /// Virtio features the guest negotiated, as the spec numbers them; 0 for an uplink.
    pub features: u64,
    /// MTU announced by the front-end, 0 when it announced none.
    pub mtu: u16,
    /// MAC addresses learnt on this port or pinned to it.
    pub residents: u32,
    /// It goes on sending more to everybody than it may.
    pub storm: bool,
    /// Running totals since the port was attached.
    #[serde(with = "row")]
    pub counters: Counters,
    /// Addresses that it uses and another port does, too.
    #[serde(default)]
    pub duplicates: Vec<DuplicateMac>,
    /// Whom it sent to, at most [`MAX_PEERS`](crate::limits::MAX_PEERS) ports.
    #[serde(default)]
    pub peers: Vec<Peer>,
}

/// Bytes of the reports of one message, at most, as [`PortReport::most_bytes`] counts them.
pub const MAX_REPORTS: usize = MAX_DATAGRAM - 64;

impl PortReport {
    /// How long it can be on the control socket, whatever it counts.
    pub(crate) fn most_bytes(&self) -> usize {
        const COUNTERS: usize = 1700;
        const LINE: usize = 90;
        COUNTERS + LINE * (self.duplicates.len() + self.peers.len())
    }
}

/// An address that a port uses and another one, too: each loses the other's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DuplicateMac {
    /// The address.
    pub mac: Mac,
    /// In which VLAN; 0 where there are none.
    pub vlan: u16,
    /// Number of the other port.
    pub port: u16,
    /// Times it has moved from one to the other.
    pub moves: u64,
}

/// What a port sent to another since it was attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Number of the other port.
    pub port: u16,
    /// Frames.
    pub frames: u64,
    /// Their bytes, without the virtio-net header.
    pub bytes: u64,
}

/// Figures of the worker itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Times the worker came back from sleep.
    pub wakeups: u64,
    /// Time-stamp counter ticks spent in rounds that moved at least one frame. Zero on
    /// machines without a time-stamp counter.
    pub busy_ticks: u64,
    /// Frames moved in those rounds (each frame once, at its sender).
    pub busy_frames: u64,
    /// Time-stamp counter ticks since the worker started.
    pub elapsed_ticks: u64,
    /// Entries in the residency table.
    pub residents: u32,
}
