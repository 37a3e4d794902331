//! The back-end side of vhost-user and of the virtio split ring. This crate does not know about
//! switching.
//!
//! # Theory of operation
//!
//! ```text
//!    front-end (QEMU)                    |  this process
//!                                        |
//!    socket ---- messages, descriptors --|-> channel -> message -> backend::Backend
//!                                        |   (framing)  (decoding)  |      features, log
//!                                        |                          v
//!    VM's memory = memfds ---------------|-> raw::Mapping <- memory::GuestMemory
//!      payload of frames                 |   raw::Span    <- chain, copy
//!      descriptors, available, used -----|-> raw::RingMemory <- ring::Ring <- vring::Vring
//!                                        |
//!    eventfds: kick ---------------------|-> the owner's epoll set
//!              call <--------------------|-- vring::Vring::call
//! ```
//!
//! A *front-end* (QEMU) connects a stream socket and sends messages over it, some with descriptors.
//! [`channel`] frames the messages, [`message`] decodes them, and [`backend::Backend`] keeps the state
//! that they build: features, [`memory::GuestMemory`] and [`vring::Vring`]s. When the front-end starts a
//! ring, the back-end creates a [`ring::Ring`], whose three parts it translates to addresses of this
//! process and checks once.
//!
//! The data path uses rings only. It reads available chains in batches ([`ring::Ring::collect`], through
//! the walker in [`chain`]), reads and checks their network headers ([`net_header`]), copies their bytes
//! ([`mod@copy`], with the routines of [`Span`]), and returns and publishes the chains in batches.
//!
//! While a VM migrates, every write into its memory is marked in its front-end's [`dirty_log`]. The code
//! that fills a buffer marks it ([`memory::GuestMemory::mark`]); `raw::RingMemory` marks writes to a used
//! ring.
//!
//! **Ownership.** A `Backend` owns its socket, descriptors and memory. Messages need exclusive access to
//! it (`&mut`). Between messages, several threads may share it and work on its rings, each of which has a
//! lock. Memory is reference-counted and shared with the rings in it, so it is unmapped when its last user
//! is dropped.
//!
//! **Failures.** Everything that a guest or front-end writes can be invalid. A [`fault::Fault`] names the
//! side that caused it; it ends this device and affects no other. [`sigbus`] detects a front-end that
//! truncates its memory while it is in use. An [`alarm`] of the thread detects a front-end whose call
//! descriptor blocks. Background threads close descriptors and unmap memory of front-ends ([`reclaim`]),
//! because either can take long. Nothing else in this crate blocks, and nothing allocates once a ring
//! runs.
//!
//! # Example
//!
//! A back-end that executes its front-end's messages, and then returns every frame that the guest
//! transmitted on its first queue pair without forwarding it:
//!
//! ```no_run
//! use std::os::fd::OwnedFd;
//!
//! use vhost::backend::{Backend, ring_fault};
//! use vhost::chain::Batch;
//! use vhost::fault::Fault;
//!
//! /// The vhost-user number of the first transmit ring.
//! const TRANSMIT: usize = 1;
//!
//! fn discard(socket: OwnedFd) -> Result<(), Fault> {
//!     vhost::sigbus::install().expect("a handler");
//!     let mut backend: Backend = Backend::new(socket, 1)?;
//!     while let Some(message) = backend.receive()? {
//!         backend.apply(message)?;
//!     }
//!     let memory = backend.memory();
//!     let Some(mut vring) = backend.vring(TRANSMIT) else {
//!         return Ok(());
//!     };
//!     let Some(ring) = vring.active_mut() else {
//!         return Ok(());
//!     };
//!     let mut batch = Batch::new();
//!     ring.collect(memory, 64, &mut batch).map_err(ring_fault(TRANSMIT))?;
//!     let chains = batch.chains();
//!     ring.consume(chains.len() as u16);
//!     ring.put_used_run(chains.iter().map(|chain| chain.head));
//!     if ring.publish() {
//!         vring.call().map_err(ring_fault(TRANSMIT))?;
//!     }
//!     Ok(())
//! }
//! ```
#![deny(unsafe_code)]

pub mod backend;
pub mod chain;
pub mod channel;
pub mod copy;
pub mod dirty_log;
pub mod fault;
pub mod fd_kind;
pub mod features;
pub mod frame_start;
pub mod handover;
mod handshake;
pub mod limits;
pub mod memory;
pub mod message;
pub mod net_header;
pub mod offer;
pub mod raw;
pub mod reclaim;
mod registered;
pub mod ring;
mod sync;
pub mod vring;

pub use raw::{Span, alarm, prefer_huge_pages, prefetch, sigbus};
