//! A valid configuration.

use std::path::PathBuf;

use message::remote::Member;
use switch::guard::Rules;
use switch::mac::Mac;

use super::direct::TrustGroup;
use super::mode::Mode;
use super::owner::Owner;
use super::spaces::Space;
use super::vsock::Vsock;
use super::web::Web;
use crate::message_uplink::Uplink;

/// Most networks of one daemon: each has its own data plane process.
pub(crate) const MAX_NETWORKS: usize = 64;

/// Most members of the message plane.
pub(crate) const MAX_MEMBERS: usize = 64;

/// Longest path of a Unix socket, in bytes (`sun_path` without its closing zero).
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Folder of the control socket and the networks' folders.
    pub(crate) runtime_dir: PathBuf,
    /// At most [`MAX_NETWORKS`], with different names; at least one, unless there is a message
    /// plane.
    pub(crate) networks: Vec<Network>,
    /// The message plane's members: none without a message plane, at most [`MAX_MEMBERS`], with
    /// different names and NIC ids; and the processes that may connect to each member's socket.
    pub(crate) members: Vec<(Member, Owner)>,
    /// The number of the Unix group whose users may use the board of this host; without it, only root may.
    pub(crate) message_unix_group: Option<u32>,
    /// The message plane's uplink to other hosts.
    pub(crate) message_uplink: Option<Uplink>,
    /// The direct channel's trust groups, with different names; no VM is in two of them.
    pub(crate) groups: Vec<TrustGroup>,
    /// Slots of all spaces together, if the controller sizes the spaces.
    pub(crate) space_budget: Option<u32>,
    /// The memory plane's spaces, of different VMs.
    pub(crate) spaces: Vec<Space>,
    /// The sockets plane's devices, with different VMs and CIDs.
    pub(crate) vsocks: Vec<Vsock>,
    /// Who may see the page, and where.
    pub(crate) web: Web,
}

/// One layer-2 domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// A valid name (see [`crate::name::check`]).
    pub(crate) name: String,
    /// `<runtime-dir>/<name>`: the folder of the default sockets, and the folder in which the
    /// network accepts ports.
    pub(crate) folder: PathBuf,
    /// Sockets that appear in the folder become ports.
    pub(crate) accept: bool,
    /// Threads that forward frames: at least one, at most [`MAX_WORKERS`](switch::steering::MAX_WORKERS).
    pub(crate) workers: usize,
    /// Microseconds for which the switch may collect frames of a stream; at most
    /// [`MAX_MODERATION_DELAY_US`](switch::limits::MAX_MODERATION_DELAY_US).
    pub(crate) moderation_us: u32,
    /// Look-ups that the switch makes for each frame, at most [`MAX_LOOK_UPS`](switch::limits::MAX_LOOK_UPS);
    /// `None` for only those that it needs.
    pub(crate) fdb_lookups: Option<u32>,
    /// The uplink: the interface to other hosts.
    pub(crate) uplink: Option<UplinkInterface>,
    /// What the uplink may send and receive.
    pub(crate) uplink_rules: Rules,
    /// What ports that are not listed may send and receive.
    pub(crate) unlisted_rules: Rules,
    /// The switch delivers frames of multicast groups only to ports that joined the group.
    pub(crate) snooping: bool,
    /// Listed ports, with different VM names, MAC addresses and sockets.
    pub(crate) ports: Vec<Port>,
}

/// The interface of a network's uplink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UplinkInterface {
    /// A tap of this name. The daemon creates it if it does not exist.
    Tap(String),
    /// An existing interface of this name.
    Interface(String),
    /// An existing interface of this name, used by AF_XDP.
    Xdp(String),
}

impl UplinkInterface {
    /// Returns the interface's name.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tap(name) | Self::Interface(name) | Self::Xdp(name) => name,
        }
    }
}

/// One VM's NIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// A valid name.
    pub(crate) vm: String,
    /// The pinned address: an individual one.
    pub(crate) mac: Option<Mac>,
    /// Absolute path of the vhost-user socket.
    pub(crate) socket: PathBuf,
    /// The process that listens on the socket.
    pub(crate) mode: Mode,
    /// What it may send and receive.
    pub(crate) rules: Rules,
    /// The processes that may connect as the front-end.
    pub(crate) owner: Owner,
    /// The ports whose frames the switch copies to this port; empty unless this is a mirror port.
    pub(crate) mirror: Vec<Mirrored>,
}

/// The ports whose frames the switch copies to a mirror port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// One port: a VM's, or the uplink.
    Port(String),
    /// All ports of the network that are not mirror ports.
    All,
}
