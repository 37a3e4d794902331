//! Every limit of the crate, in one place.

/// Queue pairs one device may have.
pub const MAX_QUEUE_PAIRS: usize = 16;

/// Rings one device may have. The front-end serves the control queue.
pub const MAX_VRINGS: usize = 2 * MAX_QUEUE_PAIRS;

/// Largest ring (virtio 1.3, section 2.7: at most 32768).
pub const MAX_RING_SIZE: u32 = 32_768;

/// Longest descriptor chain, indirect entries included. QEMU's own limit; a driver's chains are
/// far shorter (Linux: 19).
pub const MAX_CHAIN: u32 = 1024;

/// Memory regions one device may map: KVM offers a VM as many memory slots, and libvhost-user
/// allows as many.
pub const MAX_MEMORY_SLOTS: usize = 509;

/// Regions in one `SET_MEM_TABLE` (`VHOST_MEMORY_BASELINE_NREGIONS`).
pub const MAX_TABLE_REGIONS: usize = 8;

/// Guest memory one device may map, in bytes: 4 TiB.
pub const MAX_GUEST_MEMORY: u64 = 1 << 42;

/// Regions that the whole process maps at one time.
pub const MAX_MAPPINGS: usize = 32_768;

/// Largest payload of a vhost-user message, in bytes. The largest message in use has 268 bytes.
pub const MAX_PAYLOAD: usize = 1024;

/// Largest configuration space of a device, in bytes (QEMU: `VHOST_USER_MAX_CONFIG_SIZE`).
pub const MAX_CONFIG: usize = 256;

/// Descriptors one vhost-user message may carry.
pub const MAX_MESSAGE_FDS: usize = MAX_TABLE_REGIONS;

/// Chains in one batch. A 64 KiB frame in mergeable buffers of 1.5 KB takes 43 chains, which must
/// fit into a batch.
pub const BATCH: usize = 64;

/// Spans in one batch. A chain of [`MAX_CHAIN`] descriptors fits even when some of its buffers
/// cross from one memory region to the next.
pub const BATCH_SPANS: usize = 1280;

/// Largest frame a driver may send, in bytes (virtio 1.3, 5.1.6.2.1: 65,589), with two VLAN tags.
pub const MAX_FRAME: u32 = 65_589 + 8;

const _: () = assert!(BATCH_SPANS > MAX_CHAIN as usize);
const _: () = assert!(MAX_RING_SIZE.is_power_of_two());
const _: () = assert!(MAX_PAYLOAD >= 8 + MAX_TABLE_REGIONS * 32);
