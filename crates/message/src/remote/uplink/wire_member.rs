//! A member of this host, as a host on the wire.

use std::time::Duration;

use mxoe::wire::Mac;
use mxoe::{Config, Node};

use crate::remote::directory::Face;

/// How long a member that is gone still refuses what comes for it. Then it may live elsewhere.
const REFUSING: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct WireMember {
    mac: Mac,
    pub(super) node: Node,
    /// When it is over, if the member is gone.
    until: Option<Duration>,
}

impl WireMember {
    /// `None` for a NIC id that is no host's address.
    pub(super) fn new(now: Duration, face: &Face, serial: u32, patience: Duration) -> Option<Self> {
        let mac = Mac::from_nic(face.nic).filter(|mac| mac.is_host())?;
        // As native MX has it: the name, and the number of the board.
        let mut config = Config::new(mac, &format!("{}:0", face.name), serial);
        config.patience = patience;
        let mut node = Node::new(config);
        node.announce(now);
        Some(Self {
            mac,
            node,
            until: None,
        })
    }

    /// Whether a frame is for it, or for everybody.
    pub(super) fn is_meant(&self, frame: &[u8]) -> bool {
        let destination = frame.first_chunk().copied().map(Mac);
        destination.is_some_and(|mac| mac == self.mac || mac == Mac::BROADCAST)
    }

    /// The member is gone. What comes for it is refused for a while, so that its peers need not
    /// find out by silence.
    pub(super) fn leave(&mut self, now: Duration) {
        self.node.silence();
        self.until = Some(now + REFUSING);
    }

    pub(super) fn is_over(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn is_here(&self) -> bool {
        self.until.is_none()
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        [self.node.deadline(), self.until]
            .into_iter()
            .flatten()
            .min()
    }
}
