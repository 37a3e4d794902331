//! Test and benchmark support: a vhost-user front-end together with a guest's virtio-net driver, as
//! well behaved or as hostile as a test needs.
//!
//! # Theory of operation
//!
//! ```text
//!  ┌────────────── Nic ──────────────┐
//!  │ Pair: rx Queue, tx Queue        │   split rings and buffers
//!  │    └──────▶ Ram (memfd) ◀───────┼──────────────▶ the back-end maps it
//!  │ Wire ───────────────────────────┼──────────────▶ vhost-user socket
//!  └─────────────────────────────────┘
//! ```
//!
//! A [`Ram`] is a guest's memory: one memfd, presented in one or more regions. A [`Queue`] drives
//! a split ring in it the way a guest's driver does. A [`Wire`] is the front-end's end of a
//! vhost-user socket: it sends messages, right or wrong, and reads replies. A [`Nic`] puts the
//! three together: it sets a device up in QEMU's order and then sends and receives frames. A
//! [`VsockDevice`] does so for a socket device and its packets.
//!
//! This crate was written from the specifications alone and without the back-end's code, so that a
//! misunderstanding there is not repeated here. A test reaches what a well-behaved driver would never do
//! through the parts: it can write every byte of the memory and of the socket.
//!
//! The crate is for tests and benchmarks only: it panics where it cannot continue. [`TEST_TIMEOUT`] bounds every
//! wait; its purpose is to end a hung test, not to measure time.
//!
//! # Example
//!
//! ```no_run
//! use front_end::{Layout, Nic, Options, Wire, frame};
//!
//! # fn example(wire: Wire) {
//! let mut nic = Nic::new(wire, Options::default());
//! nic.start(|| {});
//! let to_all = frame::numbered(frame::BROADCAST, frame::mac(1), 7, 60);
//! nic.wait_to_send(&to_all, Layout::One);
//! # }
//! ```
#![deny(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::missing_panics_doc,
    reason = "test support: a panic is a failed test"
)]

pub mod features;
pub mod frame;
pub mod log;
pub mod membership;
pub mod nic;
pub mod options;
pub mod pair;
pub mod queue;
pub mod ram;
pub mod vsock;
pub mod wire;

pub use log::Log;
pub use nic::Nic;
pub use options::{Layout, Options, Received};
pub use pair::Pair;
pub use queue::{Buffer, Queue};
pub use ram::{Ram, Region};
pub use vsock::{VsockDevice, VsockOptions};
pub use wire::Wire;

use std::time::Duration;

/// The longest wait before a test fails.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(30);
