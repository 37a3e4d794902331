//! Memory shared across a boundary: between two processes, or between a VM and its host. This crate
//! does not interpret what is sent.
//!
//! # Theory of operation
//!
//! A *window* ([`Window`]) is a memfd that two sides map. One side creates it and seals it, so that
//! it can neither shrink nor grow; the other side checks the seals, the length and the header
//! ([`layout`]) before it maps anything. Both sides compute all offsets from the four checked sizes
//! of the header. Neither takes an address or an offset of a structure from the memory itself.
//!
//! ```text
//!        creator                          window                         attacher
//!  +-----------------+    +----------------------------------+    +-----------------+
//!  | producers[0, 1] | -> | direction 0: doorbell, claims    | -> | consumers[0, 1] |
//!  |                 |    |   lane 0: ring | data area       |    |                 |
//!  |                 |    |   lane 1: ring | data area       |    |                 |
//!  | consumers[0, 1] | <- | direction 1: the same            | <- | producers[0, 1] |
//!  +--------+--------+    +----------------------------------+    +--------+--------+
//!           |                                                              |
//!           +---------- Unix socket: descriptors, then wake-ups -----------+
//! ```
//!
//! Each direction has two [`lane`]s, so that control records never wait behind data. A lane is a
//! ring of 64-byte slots with one producer and one consumer, and a data area that is used in the
//! order of the slots. A slot is one cache line: the consumer polls the line that holds the payload
//! of a small record. Each side keeps its own positions (how far it wrote, which data is free) in
//! private memory, and the shared words only report them. So a side detects a peer that writes
//! impossible values ([`ProtocolError`]), and such a peer harms only itself.
//!
//! A side without work announces that in its [`doorbell`] word, checks for work once more, and
//! sleeps on a socket. A side that publishes a record afterwards sees the word and sends a byte.
//! The same socket carried the window's descriptor ([`attach`]); it closes when the peer ends,
//! however it ends. A [`waiter::Waiter`] sleeps on all sockets of a process at once, and
//! [`yielding`] decides whether a poller should give up its processor first, by thresholds that
//! [`calibration`] measures, and shortens its polling where [`steal`] shows that the host has too
//! few processors.
//!
//! A VM has neither memfds nor sockets in common with the host. It gets one [`region`] with many
//! windows in it, through QEMU's [`ivshmem`] device, and opens it as a [`pci`] device, without a
//! driver.
//!
//! Where both sides can write the target of a copy, both can copy: each chunk is copied by the side
//! that [claims](chunk_claim) it. A machine whose atomic operations have no effect on others
//! ([`locks`]) does not take part.
//!
//! A [`heap`] is memory that only its owner can write and that peers may read. Large payloads are
//! placed there, so that they are copied once. The heap of a member of a region is a part of that
//! region ([`region::Heap`]), which all members can write.
//!
//! What may fail: anything that the other side writes or sends. This crate reads such values once,
//! checks them, then uses them; a [`ProtocolError`] names the value that was wrong. No call blocks
//! except [`waiter::Waiter::wait`].
//!
//! # Example
//!
//! ```
//! use window::lane::Record;
//! use window::layout::{LaneSize, Layout};
//! use window::{Side, Window};
//!
//! let lane = LaneSize { slots: 64, data: 4096 };
//! let created = Window::create(Layout::new([lane, lane])?)?;
//! let mut here = created.ends(Side::Creator)?;
//!
//! // The peer receives the descriptor over a socket; see `window::attach`.
//! # use std::os::fd::AsFd;
//! let file = created.as_fd().try_clone_to_owned()?;
//! let mut there = Window::attach(file, 0)?.ends(Side::Attacher)?;
//!
//! let record = Record { tag: 1, body: [7; 7] };
//! assert!(here.producers[0].has_room()?);
//! here.producers[0].push(&record);
//! assert!(!here.ringer.needs_wakeup(), "the peer does not sleep");
//! assert_eq!(there.consumers[0].pop(), Some(record));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod attach;
pub mod byte_locks;
pub mod cached;
pub mod calibration;
pub mod chunk_claim;
pub mod doorbell;
mod header;
pub mod heap;
pub mod ivshmem;
pub mod lane;
pub mod layout;
pub mod limits;
pub mod locks;
mod memfd;
pub mod pci;
mod ranges;
mod raw;
pub mod region;
pub mod steal;
pub mod waiter;
mod window;
pub mod yielding;

pub use raw::{SharedBytes, ticks};
pub use window::{Ends, Side, Window, WindowError};

/// A violation of the protocol by the other side of a window. It ends this link only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The peer released more slots than it was given.
    #[error("the peer released {released} slots, but only {outstanding} were outstanding")]
    Released {
        /// Slots that the peer reports to have released since the last read.
        released: u32,
        /// Slots that were outstanding.
        outstanding: u32,
    },
    /// The peer took chunk claims back.
    #[error("the peer changed this side's claims of a message, or took back its own ones")]
    Claimed,
}
