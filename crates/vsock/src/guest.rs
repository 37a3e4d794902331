//! A guest: its address and rules, its front-end, and the packets that wait for it or of it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Instant;

use vhost::backend::Backend;
use vhost::channel::Message;
use vhost::features::{EVENT_IDX, IN_ORDER, INDIRECT_DESC, PROTOCOL_FEATURES, VERSION_1, protocol};
use vhost::offer::Offer;

use crate::deferred::{Copied, Deferred};
use crate::figures::Figures;
use crate::header::{Header, LAST_GUEST_CID};
use crate::policy::Rules;

/// `VIRTIO_VSOCK_F_STREAM` (5.10.3).
const STREAM: u64 = 1 << 0;
/// `VIRTIO_VSOCK_F_SEQPACKET` (5.10.3).
const SEQPACKET: u64 = 1 << 1;

/// A guest as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestConfig {
    /// The VM's name, for the log.
    pub name: String,
    /// Its CID, different from all others.
    pub cid: u32,
    /// Its rules.
    pub rules: Rules,
}

/// A guest.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) config: GuestConfig,
    /// The front-end. Taken out while its packets are handled.
    pub(crate) device: Option<Device>,
    /// The guest has a front-end.
    pub(crate) is_attached: bool,
    /// Packets of this device, and of host programs, that wait for receive buffers.
    pub(crate) replies: VecDeque<Copied>,
    /// The guest may have posted receive buffers, and something may wait for them.
    pub(crate) may_receive: bool,
    /// Where host programs connect.
    pub(crate) listener: Option<OwnedFd>,
    /// Host programs may wait there.
    pub(crate) may_accept: bool,
    /// Streams of host programs that wait until fewer packets wait for the guest.
    pub(crate) streams_wait: Vec<u64>,
    pub(crate) figures: Figures,
}

impl Guest {
    pub(crate) fn new(config: GuestConfig) -> Self {
        Self {
            config,
            device: None,
            is_attached: false,
            replies: VecDeque::new(),
            may_receive: false,
            listener: None,
            may_accept: false,
            streams_wait: Vec::new(),
            figures: Figures::default(),
        }
    }

    /// Queues a packet of this device, if the guest has a front-end.
    pub(crate) fn reply(&mut self, header: Header) {
        if self.is_attached {
            self.replies.push_back(Copied::control(header));
            self.may_receive = true;
        }
    }
}

/// A guest's front-end.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) backend: Backend,
    /// The front-end's socket may have messages.
    pub(crate) has_messages: bool,
    /// A message whose settings the supervisor is being told.
    pub(crate) pending: Option<Message>,
    /// The transmit ring may have packets.
    pub(crate) may_transmit: bool,
    /// The first packet of the transmit ring, if it is delivered in part or not at all yet.
    pub(crate) head: Option<Head>,
    /// The receiver for which the first packet of the transmit ring waits.
    pub(crate) waits_for: Option<usize>,
    /// Since when the first packet waits, and the deferred packets have no room for it.
    pub(crate) full_since: Option<Instant>,
    pub(crate) deferred: Deferred,
    /// Since when handled packets are not in the used index of the transmit ring.
    pub(crate) unreported_since: Option<Instant>,
    /// Where the transmit ring was stopped.
    pub(crate) stopped_at: Option<u16>,
}

/// A packet that stays in the transmit ring. Its header was checked, and is not read again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) header: Header,
    pub(crate) delivered: u32,
    pub(crate) to: usize,
}

impl Device {
    pub(crate) fn new(backend: Backend) -> Self {
        Self {
            backend,
            has_messages: true,
            pending: None,
            may_transmit: true,
            head: None,
            waits_for: None,
            full_since: None,
            deferred: Deferred::default(),
            unreported_since: None,
            stopped_at: None,
        }
    }

    /// Returns whether the driver negotiated sockets of type SEQPACKET.
    pub(crate) fn has_seqpacket(&self) -> bool {
        self.backend.features() & SEQPACKET != 0
    }

    /// Forgets the packets of a driver that was reset.
    pub(crate) fn reset(&mut self) {
        self.head = None;
        self.waits_for = None;
        self.full_since = None;
        self.deferred = Deferred::default();
        self.unreported_since = None;
        self.stopped_at = None;
        self.may_transmit = true;
    }
}

/// The first CID that [`cid_of`] returns; lower ones are for configurations.
const FIRST_NAMED_CID: u32 = 0x1_0000;

/// Returns the CID of a VM whose configuration has none. Two names may have the same one; a
/// configuration with both is refused.
#[must_use]
pub fn cid_of(name: &str) -> u32 {
    // FNV-1a with 32 bits.
    let step = |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step);
    FIRST_NAMED_CID + hash % (LAST_GUEST_CID - FIRST_NAMED_CID + 1)
}

/// Returns what the device of a guest with this CID offers.
pub(crate) fn offer(cid: u32) -> Offer {
    Offer {
        // QEMU serves the event queue.
        vrings: 2,
        features: PROTOCOL_FEATURES
            | VERSION_1
            | EVENT_IDX
            | INDIRECT_DESC
            | IN_ORDER
            | STREAM
            | SEQPACKET,
        protocol_features: protocol::CONFIG
            | protocol::REPLY_ACK
            | protocol::RESET_DEVICE
            | protocol::CONFIGURE_MEM_SLOTS
            | protocol::STATUS,
        // 5.10.4: the CID.
        config: u64::from(cid).to_le_bytes().into(),
    }
}
