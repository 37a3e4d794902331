//! A member of this host as a host on the wire.

use std::time::Duration;

use mxoe::wire::Mac;
use mxoe::{Config, Node};

use crate::remote::directory::NamedNic;
use crate::remote::shared_interface::SharedInterface;

/// How long a member that has left still refuses what arrives for it. After that it may run on
/// another host.
const REFUSING: Duration = Duration::from_secs(5);

/// How long a member that has joined may not know the other hosts yet. They answer its announcements, which are a second apart.
const DISCOVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct WireMember {
    mac: Mac,
    pub(super) node: Node,
    joined_at: Duration,
    /// When it is removed, if the member has left.
    until: Option<Duration>,
}

impl WireMember {
    /// Returns `None` for a NIC id that is no unicast address.
    pub(super) fn new(
        now: Duration,
        named_nic: &NamedNic,
        (serial, peer_timeout): (u32, Duration),
        configure: impl FnOnce(&mut Config),
        sharing: Option<&SharedInterface>,
    ) -> Option<Self> {
        let mac = Mac::from_nic(named_nic.nic).filter(|mac| mac.is_host())?;
        // As in native MX: the name, and the number of the board.
        let mut config = Config::new(mac, &format!("{}:0", named_nic.name), serial);
        config.peer_timeout = peer_timeout;
        configure(&mut config);
        config.shared = sharing.is_some();
        let announces = !config.only_datagrams;
        let mut node = Node::new(config);
        if announces && sharing.is_none_or(SharedInterface::answers) {
            node.announce(now);
        }
        for host in sharing.into_iter().flat_map(SharedInterface::known) {
            node.add_host(now, host);
        }
        Some(Self {
            mac,
            node,
            joined_at: now,
            until: None,
        })
    }

    /// Returns whether a frame is for this member, or is a broadcast.
    pub(super) fn accepts_frame(&self, frame: &[u8]) -> bool {
        let destination = frame.first_chunk().copied().map(Mac);
        destination.is_some_and(|mac| mac == self.mac || mac == Mac::BROADCAST)
    }

    /// Returns whether the member may still learn of other hosts that are there already.
    pub(super) fn discovers(&self, now: Duration) -> bool {
        now.saturating_sub(self.joined_at) < DISCOVERY
    }

    /// Records that the member has left. It refuses what arrives for a while, so that its peers
    /// need not detect the end by a timeout.
    pub(super) fn leave(&mut self, now: Duration) {
        self.node.stop_announcing();
        self.until = Some(now + REFUSING);
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn has_joined(&self) -> bool {
        self.until.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        [self.node.deadline(), self.until]
            .into_iter()
            .flatten()
            .min()
    }
}
