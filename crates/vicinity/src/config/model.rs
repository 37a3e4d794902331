//! A valid configuration.

use std::path::PathBuf;

use message::remote::Member;
use switch::guard::Rules;
use switch::mac::Mac;

use super::direct::TrustGroup;
use super::mode::Mode;
use super::owner::Owner;
use super::spaces::Space;
use crate::message_uplink::Uplink;

/// Most networks of one daemon: each has a data plane of its own.
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
    /// The message plane's members; none without it, at most [`MAX_MEMBERS`], with different names
    /// and NIC ids; and whom each one's socket is for.
    pub(crate) members: Vec<(Member, Owner)>,
    /// The message plane's way to other hosts.
    pub(crate) message_uplink: Option<Uplink>,
    /// The direct channel's trust groups, with different names; no VM is in two of them.
    pub(crate) groups: Vec<TrustGroup>,
    /// Slots that all spaces have together, if the controller is to share them out.
    pub(crate) space_budget: Option<u32>,
    /// The memory plane's spaces, of different VMs.
    pub(crate) spaces: Vec<Space>,
}

/// One layer-2 domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    /// A valid name (see [`crate::name::check`]).
    pub(crate) name: String,
    /// `<runtime-dir>/<name>`: where default sockets live and where the network accepts ports.
    pub(crate) folder: PathBuf,
    /// Sockets that appear in the folder become ports.
    pub(crate) accept: bool,
    /// Threads that forward frames: at least one, at most [`MAX_WORKERS`](switch::steering::MAX_WORKERS).
    pub(crate) workers: usize,
    /// Microseconds for which frames of a stream may gather; at most [`MAX_GATHER_US`](switch::limits::MAX_GATHER_US).
    pub(crate) gather_us: u32,
    /// Look-ups of each frame, at most [`MAX_LOOK_UPS`](switch::limits::MAX_LOOK_UPS); `None` for no more than are needed.
    pub(crate) look_ups: Option<u32>,
    /// What leads to other hosts.
    pub(crate) uplink: Option<Out>,
    /// What the uplink may send and receive.
    pub(crate) uplink_rules: Rules,
    /// What ports that are not listed may.
    pub(crate) unlisted_rules: Rules,
    /// Frames of multicast groups go to those who asked for them.
    pub(crate) snooping: bool,
    /// Listed ports, with different VM names, MAC addresses and sockets.
    pub(crate) ports: Vec<Port>,
}

/// A network's way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// A tap of this name, which is made if it is not there.
    Tap(String),
    /// An interface of this name, which is there.
    Interface(String),
    /// The same, by AF_XDP.
    Xdp(String),
}

impl Out {
    /// The interface's name.
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
    /// Who listens on the socket.
    pub(crate) mode: Mode,
    /// What it may send and receive.
    pub(crate) rules: Rules,
    /// Whose front-end it is for.
    pub(crate) owner: Owner,
    /// The ports whose frames are copied to it; none for a port that is no mirror port.
    pub(crate) mirror: Vec<Mirrored>,
}

/// Whose frames are copied to a mirror port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// A port's: a VM's, or the uplink's.
    Port(String),
    /// Those of all ports of the network that are no mirror ports.
    All,
}
