//! What can go wrong, and whose fault it is.

use rustix::io::Errno;

use crate::raw::{MapError, RingError};

/// Something that ends a port. Everything but [`Fault::Host`] is the doing of the guest's driver
/// or of its front-end, and a reason to quarantine the port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The front-end closed its socket.
    #[error("the front-end closed its socket")]
    Gone,
    /// The front-end broke the vhost-user protocol.
    #[error("the front-end broke the vhost-user protocol: {0}")]
    Protocol(ProtocolFault),
    /// The driver or front-end set up or drove a ring against the rules.
    #[error("ring {ring}: {fault}")]
    Ring {
        /// Which ring, as vhost-user numbers them: 0 receives, 1 transmits, 2 receives, …
        ring: usize,
        /// What it did.
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
    /// Header: only version 1 exists.
    #[error("message {request} has version {version}, only version 1 exists")]
    Version {
        /// The message's number.
        request: u32,
        /// The version it claims.
        version: u32,
    },
    /// A number that is no message of a front-end.
    #[error("there is no message {0}")]
    Unknown(u32),
    /// A message that belongs to a feature that was not negotiated.
    #[error("message {0} belongs to a feature that was not negotiated")]
    NotNegotiated(u32),
    /// The payload has not the size the message asks for.
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
        /// How many came.
        got: usize,
        /// How many it takes.
        expected: usize,
    },
    /// A descriptor of the wrong kind: using it, or closing it, could make us wait.
    #[error(
        "it handed over a descriptor of the wrong kind: kick, call and error need an eventfd, memory \
         a memfd or a file on tmpfs or hugetlbfs"
    )]
    WrongDescriptor,
    /// Features that were never offered.
    #[error("it acknowledged features that were not offered: {0:#x}")]
    Features(u64),
    /// A ring number past the last one.
    #[error("there is no ring {0}")]
    RingNumber(u32),
    /// A change that must not be made while the ring runs.
    #[error("message {request} changes ring {ring} while it runs")]
    Running {
        /// The message's number.
        request: u32,
        /// Which ring.
        ring: usize,
    },
    /// A memory region that cannot be.
    #[error("memory region at {guest:#x}, {size:#x} bytes: {why}")]
    Region {
        /// Guest-physical address.
        guest: u64,
        /// Size in bytes.
        size: u64,
        /// What is wrong with it.
        why: RegionFault,
    },
    /// A region to be removed that is not there.
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
    /// It sends requests but does not read the replies.
    #[error("it does not read its replies")]
    NotReading,
}

/// What is wrong with a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionFault {
    /// Address plus size overflow, or the size is zero.
    #[error("its addresses overflow or it is empty")]
    Range,
    /// Another region has some of its addresses.
    #[error("it overlaps another region")]
    Overlap,
    /// More regions or bytes than one device may have.
    #[error("the device has too many regions or too much memory")]
    TooMany,
    /// Its pages have no bits in the dirty log.
    #[error("the dirty log is too short for it")]
    NotLogged,
    /// It cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
}

/// A breach of the virtio rules for rings (virtio 1.3, section 2.7) or for network headers
/// (5.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingFault {
    /// The ring's memory.
    #[error(transparent)]
    Memory(#[from] RingError),
    /// A part of the ring lies outside guest memory.
    #[error("its {0} is not in guest memory: is all of that shared (QEMU: share=on)?")]
    Outside(&'static str),
    /// The last byte of its used ring has no bit in the dirty log.
    #[error("its used ring is to be logged at {0:#x}, past the end of the dirty log")]
    NotLogged(u64),
    /// A kick or call descriptor that cannot be one.
    #[error("its {0} descriptor cannot carry events")]
    Notifier(&'static str),
    /// A call descriptor that was made to block, and was full.
    #[error("its call descriptor was filled and made to block")]
    Blocks,
    /// The ring was started before it was described.
    #[error("it was started before its size and addresses were set")]
    NotConfigured,
    /// 2.7.6: the available index runs ahead of what the ring can hold.
    #[error(
        "available index {index} is more than {size} ahead of {seen}: its driver is broken, or its memory \
         not shared (QEMU: share=on)"
    )]
    AvailableIndex {
        /// The index found.
        index: u16,
        /// The last one handled.
        seen: u16,
        /// The ring's size.
        size: u32,
    },
    /// 2.7.6: a head past the descriptor table.
    #[error("chain head {0} is past the descriptor table")]
    Head(u16),
    /// A descriptor that names a next one past its table.
    #[error("a descriptor points to {0}, past its table")]
    Next(u16),
    /// 2.7.5: longer than a chain may be, which a loop is.
    #[error("a descriptor chain loops or is too long")]
    ChainTooLong,
    /// More pieces than a chain may have in memory.
    #[error("a descriptor chain is in too many pieces")]
    TooManyPieces,
    /// A descriptor of no bytes.
    #[error("a descriptor has no bytes")]
    Empty,
    /// A buffer that is not in guest memory.
    #[error("a descriptor names {length} bytes at {address:#x}, outside guest memory")]
    Address {
        /// Guest-physical address.
        address: u64,
        /// Length in bytes.
        length: u32,
    },
    /// 2.7.4.2: all descriptors of this ring are of the other direction.
    #[error("a descriptor is {0}")]
    Direction(&'static str),
    /// 2.7.5.3.1: indirect not negotiated, nested, or together with NEXT.
    #[error("an indirect descriptor is {0}")]
    Indirect(&'static str),
    /// 2.7.5: the bytes of a chain overflow.
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
