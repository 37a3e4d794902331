//! Feature bits, as the specifications number them.

/// `VIRTIO_NET_F_CSUM`.
pub const CSUM: u64 = 1 << 0;
/// `VIRTIO_NET_F_GUEST_CSUM`.
pub const GUEST_CSUM: u64 = 1 << 1;
/// `VIRTIO_NET_F_GUEST_TSO4`.
pub const GUEST_TSO4: u64 = 1 << 7;
/// `VIRTIO_NET_F_GUEST_TSO6`.
pub const GUEST_TSO6: u64 = 1 << 8;
/// `VIRTIO_NET_F_GUEST_ECN`.
pub const GUEST_ECN: u64 = 1 << 9;
/// `VIRTIO_NET_F_HOST_TSO4`.
pub const HOST_TSO4: u64 = 1 << 11;
/// `VIRTIO_NET_F_HOST_TSO6`.
pub const HOST_TSO6: u64 = 1 << 12;
/// `VIRTIO_NET_F_MRG_RXBUF`.
pub const MRG_RXBUF: u64 = 1 << 15;
/// `VHOST_F_LOG_ALL`.
pub const LOG_ALL: u64 = 1 << 26;
/// `VIRTIO_NET_F_MQ`.
pub const MQ: u64 = 1 << 22;
/// `VIRTIO_F_INDIRECT_DESC`.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// `VIRTIO_F_EVENT_IDX`.
pub const EVENT_IDX: u64 = 1 << 29;
/// `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// `VIRTIO_F_VERSION_1`.
pub const VERSION_1: u64 = 1 << 32;

/// `VIRTIO_F_IN_ORDER`.
pub const IN_ORDER: u64 = 1 << 35;

/// The features that a modern driver without offloads negotiates.
pub const PLAIN: u64 = VERSION_1 | PROTOCOL_FEATURES | EVENT_IDX | INDIRECT_DESC | MRG_RXBUF;

/// The features that the Linux driver negotiates.
pub const LINUX: u64 =
    PLAIN | CSUM | GUEST_CSUM | GUEST_TSO4 | GUEST_TSO6 | GUEST_ECN | HOST_TSO4 | HOST_TSO6;

/// Vhost-user protocol features.
pub mod protocol {
    /// `VHOST_USER_PROTOCOL_F_LOG_SHMFD`.
    pub const LOG_SHMFD: u64 = 1 << 1;
    /// `VHOST_USER_PROTOCOL_F_REPLY_ACK`.
    pub const REPLY_ACK: u64 = 1 << 3;
    /// `VHOST_USER_PROTOCOL_F_STATUS`.
    pub const STATUS: u64 = 1 << 16;
}
