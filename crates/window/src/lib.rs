//! Memory shared across a boundary: between two processes, or between a VM and its host. Knows
//! nothing of what is sent.
//!
//! # Theory of operation
//!
//! A *window* is a memfd that two sides map ([`Window`]). One side creates it and seals it, so
//! that it can neither shrink nor grow; the other checks the seals, the length and the header
//! ([`layout`]) before it maps anything. Both compute every place in it from the four checked
//! sizes of the header; no address and no offset of a structure is ever taken from the memory.
//!
//! A window carries two directions, and each direction two [`lane`]s, so that control never waits
//! behind data. A lane is a ring of 64-byte slots with one producer and one consumer, and a data
//! area that is used in the order of the slots. A slot is one cache line: the consumer polls the
//! line that the payload of a small record is in. What a side decides (how far it wrote, which
//! data is taken) is kept in its own private memory; the other side only learns of it. So a peer
//! that writes nonsense can be found out, and can harm nobody but itself.
//!
//! A side that has nothing to do says so in its [`doorbell`] word, looks once more, and sleeps on
//! a socket; whoever writes for it afterwards sees the word and sends a byte. The same socket
//! carried the window's descriptor ([`attach`]), and its end tells that the peer is gone, however
//! it died. A [`waiter::Waiter`] sleeps on all of a process's sockets at once.
//!
//! A VM has no memfds and no sockets. It is given one [`region`] with many windows in it, by QEMU's
//! [`ivshmem`] device, and finds it as a [`pci`] device, without a driver.
//!
//! Where both sides can write the memory that something is copied to, both can copy: a chunk at a time, as they
//! [`chunk_claim`] them, unless one is a machine whose [`locks`] mean nothing to others.
//!
//! A [`heap`] is memory that only its owner can write, and that peers may read: large payloads lie
//! there so that they are copied once. For members of a region it is a part of that
//! ([`region::Heap`]), which all of them can write.
//!
//! What may fail: whatever the other side writes or sends. It is read once, checked, then used; a
//! [`ProtocolError`] says what was wrong. Nothing here blocks except [`waiter::Waiter::wait`].
#![deny(unsafe_code)]

pub mod attach;
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
pub mod waiter;
mod window;
pub mod yielding;

pub use raw::SharedBytes;
pub use window::{Ends, Side, Window, WindowError};

/// What the other side of a window did wrong. It ends the link, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// It says it has taken more than it was given.
    #[error("the peer released {released} slots where {outstanding} were outstanding")]
    Released {
        /// What it claims to have taken since it was last asked.
        released: u32,
        /// What it could have taken.
        outstanding: u32,
    },
    /// It takes back claims.
    #[error(
        "the peer says that chunk {next} is the next to copy, after one before {least} was claimed"
    )]
    Claimed {
        /// The first that could have been next.
        least: u32,
        /// The next, as it says.
        next: u32,
    },
}
