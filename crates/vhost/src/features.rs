//! The virtio and vhost-user features that this back-end offers.

use crate::net_header::NetHeader;
use virtio_bindings::{virtio_config as config, virtio_net as net, virtio_ring as ring};

/// `VHOST_F_LOG_ALL`: the back-end logs every write into guest memory. The front-end, not the driver,
/// acknowledges this feature while the VM migrates.
pub const LOG_ALL: u64 = 1 << 26;

/// `VHOST_USER_F_PROTOCOL_FEATURES`: the front-end may negotiate protocol features.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;

/// `VHOST_USER_PROTOCOL_F_*` (vhost-user specification, "Protocol features").
pub mod protocol {
    /// More than one queue pair.
    pub const MQ: u64 = 1 << 0;
    /// The front-end passes the dirty log as a descriptor of shared memory.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// The front-end may ask the back-end to send a RARP after a migration.
    pub const RARP: u64 = 1 << 2;
    /// Messages may request an acknowledgement.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// The front-end announces the MTU.
    pub const MTU: u64 = 1 << 4;
    /// The front-end reads the device's configuration space.
    pub const CONFIG: u64 = 1 << 9;
    /// The front-end can reset the device.
    pub const RESET_DEVICE: u64 = 1 << 13;
    /// The front-end adds and removes memory regions one by one.
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    /// The front-end passes the driver's status on.
    pub const STATUS: u64 = 1 << 16;

    /// The protocol features that a network card offers.
    pub const OFFERED: u64 =
        MQ | LOG_SHMFD | RARP | REPLY_ACK | MTU | RESET_DEVICE | CONFIGURE_MEM_SLOTS | STATUS;
}

/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << config::VIRTIO_F_VERSION_1;
/// `VIRTIO_F_EVENT_IDX`.
pub const EVENT_IDX: u64 = 1 << ring::VIRTIO_RING_F_EVENT_IDX;
/// `VIRTIO_F_INDIRECT_DESC`.
pub const INDIRECT_DESC: u64 = 1 << ring::VIRTIO_RING_F_INDIRECT_DESC;
/// `VIRTIO_F_IN_ORDER`.
pub const IN_ORDER: u64 = 1 << config::VIRTIO_F_IN_ORDER;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub const MRG_RXBUF: u64 = 1 << net::VIRTIO_NET_F_MRG_RXBUF;

/// `VIRTIO_NET_F_MQ`; offered when the device has more than one queue pair.
pub const MQ: u64 = 1 << net::VIRTIO_NET_F_MQ;

/// The features that a network card offers, including the bits of vhost-user.
///
/// The control queue is not among them: QEMU serves it itself, and another front-end would wait
/// without a limit for an answer of this back-end.
pub const OFFERED: u64 = PROTOCOL_FEATURES
    | LOG_ALL
    | VERSION_1
    | EVENT_IDX
    | INDIRECT_DESC
    | IN_ORDER
    | MRG_RXBUF
    | 1 << config::VIRTIO_F_ANY_LAYOUT
    | 1 << net::VIRTIO_NET_F_CSUM
    | 1 << net::VIRTIO_NET_F_GUEST_CSUM
    | 1 << net::VIRTIO_NET_F_GUEST_TSO4
    | 1 << net::VIRTIO_NET_F_GUEST_TSO6
    | 1 << net::VIRTIO_NET_F_GUEST_ECN
    | 1 << net::VIRTIO_NET_F_GUEST_USO4
    | 1 << net::VIRTIO_NET_F_GUEST_USO6
    | 1 << net::VIRTIO_NET_F_HOST_TSO4
    | 1 << net::VIRTIO_NET_F_HOST_TSO6
    | 1 << net::VIRTIO_NET_F_HOST_ECN
    | 1 << net::VIRTIO_NET_F_HOST_USO
    | 1 << net::VIRTIO_NET_F_MTU
    | 1 << net::VIRTIO_NET_F_GUEST_ANNOUNCE
    | MQ;

/// Returns whether a driver with these features can request offloads in the network headers that it
/// sends. Every offload needs `VIRTIO_NET_F_CSUM` (5.1.3.1); without it, the header need not be read.
#[inline]
#[must_use]
pub fn tx_offloads_negotiated(features: u64) -> bool {
    features & (1 << net::VIRTIO_NET_F_CSUM) != 0
}

/// Returns the length of the network header under these features, in bytes (5.1.6).
#[inline]
#[must_use]
pub fn header_size(features: u64) -> u32 {
    if features & (VERSION_1 | MRG_RXBUF) == 0 {
        10
    } else {
        12
    }
}

const _: () = assert!(NetHeader::LEGACY_SIZE == 10 && NetHeader::SIZE == 12);
