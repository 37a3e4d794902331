//! The answers of the control API: the daemon writes them, and the commands read them.

mod fdb;
mod remote_peer;
mod renamed;
mod space;
mod vsock;

use message::remote::{MemberReport, MessagesSent, uplink};
use observe::traffic::Traffic;
use serde::{Deserialize, Serialize};
use switch::control::{Counters, WorkerReport};
use switch::guard::Rules;
use switch::mac::Mac;

use crate::config::Mode;
pub(crate) use fdb::{FdbEntryStatus, FdbOrigin};
pub(crate) use remote_peer::RemotePeerStatus;
pub(crate) use space::{ControlStatus, ControlledStatus, DecisionStatus, SpaceStatus};
pub(crate) use vsock::VsockStatus;

/// One port, as `GET /v1/ports` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PortStatus {
    /// Name of the network.
    pub(crate) network: String,
    /// Name of the VM; of the tap for an uplink.
    pub(crate) vm: String,
    /// Whether the port leads to a VM or to other hosts.
    pub(crate) kind: Kind,
    /// The state of the port.
    pub(crate) state: State,
    /// The side that listens on the socket; absent for an uplink.
    pub(crate) mode: Option<Mode>,
    /// Path of the vhost-user socket; absent for an uplink.
    pub(crate) socket: Option<String>,
    /// The pinned address.
    pub(crate) mac: Option<Mac>,
    /// The rules for frames that the port sends and receives.
    pub(crate) rules: Rules,
    /// The old name of `fdb_entries`.
    pub(crate) residents: u32,
    /// FDB entries that lead to this port, learnt and pinned.
    #[serde(default)]
    pub(crate) fdb_entries: u32,
    /// Virtio features in force, as the specification numbers them.
    pub(crate) features: u64,
    /// MTU the front-end announced, 0 for none.
    pub(crate) mtu: u16,
    /// Connections served, the present one included.
    pub(crate) connections: u64,
    /// Times in quarantine.
    pub(crate) quarantines: u64,
    /// Milliseconds until the present quarantine ends.
    pub(crate) quarantine_left_ms: Option<u64>,
    /// The reason why the port is not served, or why it was not served the last time.
    pub(crate) reason: Option<String>,
    /// Milliseconds for which the guest has posted no buffer for a frame that waits for it; 0 if none waits.
    #[serde(default)]
    pub(crate) stuck_ms: u64,
    /// Totals since the daemon started.
    #[serde(serialize_with = "renamed::counters")]
    pub(crate) counters: Counters,
    /// The traffic to each other port since its front-end connected; for at most
    /// [`MAX_PEERS`](switch::limits::MAX_PEERS) of them.
    #[serde(default)]
    pub(crate) sent_to: Vec<SentTo>,
    /// The ports whose frames are copied to it; none for a port that is no mirror port.
    #[serde(default)]
    pub(crate) mirrors: Vec<String>,
    /// MAC addresses that both this port and another one use. Each of the two loses the other's frames.
    #[serde(default)]
    pub(crate) duplicates: Vec<Duplicate>,
    /// The MAC addresses behind the uplink with which the port exchanged the most bytes, at most
    /// [`MAX_REMOTE_PEERS`](switch::limits::MAX_REMOTE_PEERS).
    #[serde(default)]
    pub(crate) remote_peers: Vec<RemotePeerStatus>,
}

/// A MAC address that two ports use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Duplicate {
    /// The address.
    pub(crate) mac: Mac,
    /// The VLAN; 0 in a network without VLANs.
    pub(crate) vlan: u16,
    /// The other port's VM; the tap of an uplink.
    pub(crate) vm: String,
    /// How often the address moved from one port to the other.
    pub(crate) moves: u64,
}

/// What a port, or a member of the direct channel or of the message plane, sent to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SentTo {
    /// The other port's VM; the tap of an uplink.
    pub(crate) vm: String,
    /// Frames, packets or messages.
    pub(crate) frames: u64,
    /// Bytes.
    pub(crate) bytes: u64,
}

impl From<direct::DirectSent> for SentTo {
    fn from(sent: direct::DirectSent) -> Self {
        Self {
            vm: sent.vm,
            frames: sent.packets,
            bytes: sent.bytes,
        }
    }
}

impl From<MessagesSent> for SentTo {
    fn from(sent: MessagesSent) -> Self {
        Self {
            vm: sent.name,
            frames: sent.messages,
            bytes: sent.bytes,
        }
    }
}

impl PortStatus {
    /// Returns the traffic through the port.
    pub(crate) fn traffic(&self) -> Traffic {
        let counters = &self.counters;
        Traffic {
            tx_frames: counters.tx_frames,
            tx_bytes: counters.tx_bytes,
            rx_frames: counters.rx_frames,
            rx_bytes: counters.rx_bytes,
        }
    }
}

/// What a port leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// A VM.
    Vm,
    /// Other hosts.
    Uplink,
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum State {
    /// No front-end is connected.
    Waiting,
    /// A front-end is connected; the guest's driver has not started its rings.
    Connected,
    /// Frames flow.
    Running,
    /// Frames flow, and writes into the guest's memory are logged: it migrates.
    Migrating,
    /// The supervisor refuses this port's front-end for a while; see the reason.
    Quarantined,
    /// An uplink that failed, or a port of a network that is down.
    Down,
}

impl State {
    /// Returns the word for a table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Connected => "connected",
            Self::Running => "running",
            Self::Migrating => "migrating",
            Self::Quarantined => "quarantined",
            Self::Down => "down",
        }
    }
}

/// The configuration in force, as `GET /v1/config` and every change return it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ConfigStatus {
    /// The configuration file; absent for the default configuration, to which no change is written.
    pub(crate) file: Option<String>,
    /// The text of the configuration.
    pub(crate) text: String,
}

/// One network, as `GET /v1/networks` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkStatus {
    /// Its name.
    pub(crate) name: String,
    /// Whether its data plane runs.
    pub(crate) up: bool,
    /// How often the supervisor restarted its data plane.
    pub(crate) restarts: u64,
    /// The reason why the data plane does not run.
    pub(crate) reason: Option<String>,
    /// The tap or interface that leads to other hosts.
    pub(crate) uplink: Option<String>,
    /// Folder of its sockets.
    pub(crate) folder: String,
    /// Whether sockets in the folder become ports.
    pub(crate) accept: bool,
    /// The old name of `moderation_us`.
    pub(crate) gather_us: u32,
    /// Longest time, in microseconds, for which interrupt moderation lets frames of a stream wait.
    #[serde(default)]
    pub(crate) moderation_us: u32,
    /// The old name of `fdb_lookups`.
    pub(crate) look_ups: Option<u32>,
    /// FDB look-ups for each frame, if the configuration sets a number.
    #[serde(default)]
    pub(crate) fdb_lookups: Option<u32>,
    /// Ports, the uplink included.
    pub(crate) ports: usize,
    /// Ports with a front-end.
    pub(crate) attached: usize,
    /// Figures of the workers, as sums.
    #[serde(serialize_with = "renamed::worker")]
    pub(crate) worker: WorkerReport,
}

/// The message plane, as `GET /v1/messages` returns it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MessageStatus {
    /// Whether its data plane runs.
    pub(crate) up: bool,
    /// How often the supervisor restarted its data plane.
    pub(crate) restarts: u64,
    /// The reason why the data plane does not run.
    pub(crate) reason: Option<String>,
    /// How often the supervisor restarted the gateway of this host's programs; absent if the host is no member.
    pub(crate) gateway_restarts: Option<u64>,
    /// The reason why the gateway does not run.
    pub(crate) gateway_reason: Option<String>,
    /// How often the supervisor restarted the uplink; absent without an uplink.
    pub(crate) uplink_restarts: Option<u64>,
    /// The reason why the uplink does not run.
    pub(crate) uplink_reason: Option<String>,
    /// The uplink's counters since it was started; absent without an uplink.
    pub(crate) uplink: Option<UplinkStatus>,
    /// Its members.
    pub(crate) members: Vec<MemberStatus>,
}

/// The counters of the message plane's uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UplinkStatus {
    /// Frames sent.
    pub(crate) sent: u64,
    /// Frames received for members of this host.
    pub(crate) received: u64,
    /// Received frames that were malformed, or from an unknown host.
    pub(crate) ignored: u64,
    /// Frames that the kernel dropped because the uplink did not read them in time.
    pub(crate) lost: u64,
    /// Messages that the uplink retransmitted because the receiver did not acknowledge them in time.
    pub(crate) resent: u64,
    /// The old name of `repeated_pulls`.
    pub(crate) asked_again: u64,
    /// Blocks of large messages that the uplink requested again, because they did not arrive in time.
    #[serde(default)]
    pub(crate) repeated_pulls: u64,
    /// Refusals (nacks) sent.
    pub(crate) refused: u64,
}

impl From<uplink::Counters> for UplinkStatus {
    fn from(uplink::Counters { wire, lost }: uplink::Counters) -> Self {
        Self {
            sent: wire.sent,
            received: wire.received,
            ignored: wire.ignored,
            lost,
            resent: wire.resent,
            asked_again: wire.asked_again,
            repeated_pulls: wire.asked_again,
            refused: wire.refused,
        }
    }
}

/// A member of the message plane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberStatus {
    /// Its name.
    pub(crate) name: String,
    /// Its trust group.
    pub(crate) group: Option<String>,
    /// The NIC id of its board, as twelve hexadecimal digits.
    pub(crate) nic: String,
    /// Whether its VM runs.
    pub(crate) connected: bool,
    /// Whether its gateway has joined.
    pub(crate) joined: bool,
    /// Whether its gateway polls, because its VM has no driver `vicinity_wake` and so the host cannot wake it.
    #[serde(default)]
    pub(crate) polling: bool,
    /// Whether its gateway has sent no heartbeat for 10 s, as when its VM is paused. Its links stay.
    #[serde(default)]
    pub(crate) silent: bool,
    /// Present links.
    pub(crate) links: u32,
    /// Times its gateway joined.
    pub(crate) joins: u64,
    /// The old name of `links_total`.
    pub(crate) linked: u64,
    /// Links since the data plane started, the present links included.
    #[serde(default)]
    pub(crate) links_total: u64,
    /// Messages that the relay copied from this member. Messages of direct links do not pass the host and are not
    /// counted.
    pub(crate) messages: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// The old name of `protocol_errors`.
    pub(crate) faults: u64,
    /// Times the host disconnected the member or closed a link of it, because the member broke the protocol.
    #[serde(default)]
    pub(crate) protocol_errors: u64,
    /// What the relay copied from it to each other member, for those with the most bytes.
    #[serde(default)]
    pub(crate) sent_to: Vec<SentTo>,
}

impl From<MemberReport> for MemberStatus {
    fn from(member: MemberReport) -> Self {
        Self {
            name: member.name,
            group: member.group,
            nic: format!("{:012x}", member.nic),
            connected: member.connected,
            joined: member.joined,
            polling: member.polling,
            silent: member.silent,
            links: member.links,
            joins: member.counters.joins,
            linked: member.counters.links,
            links_total: member.counters.links,
            messages: member.counters.messages,
            bytes: member.counters.bytes,
            faults: member.counters.faults,
            protocol_errors: member.counters.faults,
            sent_to: member.sent_to.into_iter().map(SentTo::from).collect(),
        }
    }
}

/// A trust group of the direct channel, as `GET /v1/direct` lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupStatus {
    /// Its name.
    pub(crate) name: String,
    /// Whether its process runs. Without the process its VMs continue to exchange packets, but no VM joins or leaves.
    pub(crate) up: bool,
    /// How often the supervisor restarted the process.
    pub(crate) restarts: u64,
    /// The reason why the process does not run, or why the last one ended.
    pub(crate) reason: Option<String>,
    /// Its members; none while the process does not run.
    pub(crate) members: Vec<GroupMemberStatus>,
}

/// A member of a trust group.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupMemberStatus {
    /// The VM.
    pub(crate) vm: String,
    /// `absent`, `joined`, `leaving` or `out`.
    pub(crate) state: String,
    /// The reason why the member is not in the state that it should be in.
    pub(crate) reason: Option<String>,
    /// What its guest says to have sent to each other member through shared memory.
    #[serde(default)]
    pub(crate) sent_to: Vec<SentTo>,
}

impl From<direct::MemberStatus> for GroupMemberStatus {
    fn from(status: direct::MemberStatus) -> Self {
        Self {
            vm: status.name,
            state: status.state.to_owned(),
            reason: status.reason,
            sent_to: status.sent_to.into_iter().map(SentTo::from).collect(),
        }
    }
}
