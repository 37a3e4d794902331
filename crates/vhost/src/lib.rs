//! The back-end side of vhost-user, and of the virtio split ring. Knows nothing of switching.
//!
//! # Theory of operation
//!
//! A *front-end* (QEMU) connects a stream socket. Over it come [`message`]s, some with
//! descriptors; [`channel`] frames them, [`message`] decodes them, and [`backend::Backend`] keeps
//! the state they build up: features, [`memory::GuestMemory`] and [`vring::Vring`]s. A ring that
//! is started becomes a [`ring::Ring`], whose three parts were translated to this process's
//! addresses once and checked.
//!
//! The data path then works on rings alone: look at available chains in batches
//! ([`ring::Ring::collect`], through the one chain walker in [`chain`]), read and check their
//! network headers ([`net_header`]), copy their bytes (the copy routines of `raw::Span`), hand the
//! chains back and publish them in batches.
//!
//! While a VM migrates, every write into its memory is noted in its front-end's [`dirty_log`]:
//! those into buffers by whoever fills them ([`memory::GuestMemory::mark`]), those into a used
//! ring by `raw::RingMemory`.
//!
//! Who owns what: a `Backend` owns its socket, descriptors and memory. Messages need it whole
//! (`&mut`); in between, several threads may share it and work on the rings, each of which has a
//! lock of its own. Memory is shared by reference count with the rings in it, so it is unmapped
//! when the last user is done.
//!
//! What may fail: everything a guest or front-end writes. A [`fault::Fault`] says whose doing it
//! was; it ends this device and nothing else. A front-end that truncates its memory in use is
//! caught too ([`sigbus`]), and so is one that makes us wait where its guest is called, if the
//! thread has an [`alarm`]. What front-ends handed over is closed and unmapped by threads that nobody waits
//! for ([`reclaim`]). Nothing else here blocks, and nothing allocates once a ring runs.
#![deny(unsafe_code)]

pub mod backend;
pub mod chain;
pub mod channel;
pub mod copy;
pub mod descriptor;
pub mod dirty_log;
pub mod fault;
pub mod features;
pub mod frame_start;
mod handshake;
pub mod limits;
pub mod memory;
pub mod message;
pub mod net_header;
pub mod raw;
pub mod reclaim;
mod registered;
pub mod ring;
mod sync;
pub mod vring;

pub use raw::{Span, alarm, prefer_huge_pages, prefetch, sigbus};
