//! The errors that end a port, and the cause of each: the guest's driver, its front-end or this host.

use rustix::io::Errno;

use crate::raw::{MapError, RingError};

/// An error that ends a port. The guest's driver or its front-end causes every fault except
/// [`Fault::Host`], and every such fault except [`Fault::Disconnected`] is a reason to quarantine the port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The front-end closed its socket.
    #[error("the front-end closed its socket")]
    Disconnected,
    /// The front-end broke the vhost-user protocol.
    #[error("the front-end broke the vhost-user protocol: {0}")]
    Protocol(ProtocolFault),
    /// The driver or front-end set up or drove a ring against the rules.
    #[error("ring {ring}: {fault}")]
    Ring {
        /// The ring's vhost-user number: 0 receives, 1 transmits, 2 receives, …
        ring: usize,
        /// The rule that it broke.
        fault: RingFault,
    },
    /// The front-end truncated its memory while it was in use.
    #[error("the front-end truncated its memory while it was in use")]
    Truncated,
    /// This host cannot serve the port.
    #[error("this host cannot serve the port: {0}")]
    Host(Errno),
}

/// A front-end's breach of the vhost-user protocol.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolFault {
    /// The header names a version other than 1.
    #[error("message {request} has version {version}, but only version 1 exists")]
    Version {
        /// The message's number.
        request: u32,
        /// The version it claims.
        version: u32,
    },
    /// A number that no front-end message has.
    #[error("it sent an unknown message {0}")]
    Unknown(u32),
    /// A message that belongs to a feature that was not negotiated.
    #[error("message {0} belongs to a feature that was not negotiated")]
    NotNegotiated(u32),
    /// The payload does not have the size that the message requires.
    #[error("message {request} has a payload of {size} bytes")]
    Size {
        /// The message's number.
        request: u32,
        /// The payload's size.
        size: u32,
    },
    /// The message came with more or fewer descriptors than it takes.
    #[error("message {request} came with {got} descriptors instead of {expected}")]
    Descriptors {
        /// The message's number.
        request: u32,
        /// Descriptors that came with the message.
        got: usize,
        /// Descriptors that the message takes.
        expected: usize,
    },
    /// A descriptor of the wrong kind: using or closing it could block the worker.
    #[error(
        "it sent a descriptor of the wrong kind; kick, call and error need an eventfd, memory needs a memfd or a \
            file on tmpfs or hugetlbfs"
    )]
    WrongDescriptor,
    /// Features that this back-end did not offer.
    #[error("it acknowledged features that were not offered: {0:#x}")]
    Features(u64),
    /// A ring number past the last one.
    #[error("there is no ring {0}")]
    RingNumber(u32),
    /// A change that is not allowed while the ring runs.
    #[error("message {request} changes ring {ring} while it runs")]
    Running {
        /// The message's number.
        request: u32,
        /// Which ring.
        ring: usize,
    },
    /// A memory region that cannot be used.
    #[error("memory region at {guest:#x}, {size:#x} bytes: {why}")]
    Region {
        /// Guest-physical address.
        guest: u64,
        /// Size in bytes.
        size: u64,
        /// What is wrong with it.
        why: RegionFault,
    },
    /// A request to remove a region that does not exist.
    #[error("there is no memory region at {0:#x} to remove")]
    NoRegion(u64),
    /// A dirty log that cannot be used.
    #[error("its dirty log, {size:#x} bytes: {why}")]
    Log {
        /// Size in bytes.
        size: u64,
        /// What is wrong with it.
        why: MapError,
    },
    /// The front-end sends requests but does not read the replies.
    #[error("it does not read its replies")]
    NotReading,
}

/// What is wrong with a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// Address plus size overflow, or the size is zero.
    #[error("its addresses overflow or it is empty")]
    Range,
    /// The region overlaps another one.
    #[error("it overlaps another region")]
    Overlap,
    /// The device would have more regions or bytes than the limits allow.
    #[error("the device has too many regions or too much memory")]
    TooMany,
    /// The dirty log has no bits for some of the region's pages.
    #[error("the dirty log is too short for it")]
    NotLogged,
    /// The region cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A breach of the virtio rules for rings (virtio 1.3, section 2.7) or for network headers
/// (5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The ring's size or the memory of one of its parts is invalid.
    #[error(transparent)]
    Memory(#[from] RingError),
    /// A part of the ring lies outside guest memory.
    #[error("its {0} is not in guest memory; start the VM with shared memory (QEMU: share=on)")]
    Outside(&'static str),
    /// The dirty log has no bit for the last byte of the used ring.
    #[error("its used ring has the log address {0:#x}, past the end of the dirty log")]
    NotLogged(u64),
    /// A kick or call descriptor that cannot carry events.
    #[error("its {0} descriptor cannot carry events")]
    Notifier(&'static str),
    /// The front-end made the call descriptor block, and its counter was full.
    #[error("the front-end filled its call descriptor and made it block")]
    Blocks,
    /// The front-end started the ring before it set the ring's size and addresses.
    #[error("it was started before its size and addresses were set")]
    NotConfigured,
    /// 2.7.6: the available index is further ahead than the ring has entries.
    #[error(
        "available index {index} is more than {size} ahead of {seen}: the guest's driver is broken, or the VM's \
            memory is not shared (QEMU: share=on)"
    )]
    AvailableIndex {
        /// The index in memory.
        index: u16,
        /// The index of the next chain to take.
        seen: u16,
        /// The ring's size.
        size: u32,
    },
    /// 2.7.6: a head past the descriptor table.
    #[error("chain head {0} is past the descriptor table")]
    Head(u16),
    /// A descriptor whose next descriptor is past the end of the table.
    #[error("a descriptor points to {0}, past its table")]
    Next(u16),
    /// 2.7.5: a chain that is longer than the limit. A loop is detected this way.
    #[error("a descriptor chain loops or is too long")]
    ChainTooLong,
    /// A chain that occupies more pieces of memory than a batch has spans.
    #[error("a descriptor chain is in too many pieces")]
    TooManyPieces,
    /// A descriptor of length 0.
    #[error("a descriptor has no bytes")]
    Empty,
    /// A buffer outside guest memory.
    #[error("a descriptor names {length} bytes at {address:#x}, outside guest memory")]
    Address {
        /// Guest-physical address.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
    /// 2.7.4.2: a descriptor whose direction does not match the ring's.
    #[error("a descriptor is {0}")]
    Direction(&'static str),
    /// 2.7.5.3.1: an indirect descriptor that was not negotiated, is nested, or has NEXT set.
    #[error("an indirect descriptor is {0}")]
    Indirect(&'static str),
    /// 2.7.5: a chain of 4 GiB or more.
    #[error("a chain has more than 4 GiB")]
    TooManyBytes,
    /// 5.1.6: the chain is shorter than the network header.
    #[error("a chain of {0} bytes has no room for the network header")]
    NoHeader(u32),
    /// 5.1.6.2: a network header that contradicts itself or the negotiated features.
    #[error("network header: {0}")]
    Header(&'static str),
}

impl From<ProtocolFault> for Fault {
    fn from(fault: ProtocolFault) -> Self {
        Self::Protocol(fault)
    }
}
