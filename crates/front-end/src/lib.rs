//! Test and benchmark support: the other side of vhost-user. A front-end and a guest's driver in
//! one, as well behaved or as hostile as a test wants.
//!
//! # Theory of operation
//!
//! A [`Ram`] is a guest's memory: one memfd, presented in one or more regions. A [`Queue`] drives
//! a split ring in it the way a guest's driver does. A [`Wire`] is the front-end's end of a
//! vhost-user socket: it sends messages, right or wrong, and reads replies. A [`Nic`] puts the
//! three together: it sets a device up in QEMU's order and then sends and receives frames.
//!
//! Written from the specifications alone and without the back-end's code, so that a
//! misunderstanding there is not repeated here. Whatever a well-behaved driver would never do is
//! reached through the parts: every byte of the memory and of the socket can be written.
//!
//! For tests and benchmarks only: what cannot go on panics. Waiting is bounded by [`GUARD`], which
//! is there to end a hung test and not to time anything.
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
pub mod wire;

pub use log::Log;
pub use nic::Nic;
pub use options::{Layout, Options, Received};
pub use pair::Pair;
pub use queue::{Buffer, Queue};
pub use ram::{Ram, Region};
pub use wire::Wire;

use std::time::Duration;

/// How long anything is waited for before the test is given up.
pub const GUARD: Duration = Duration::from_secs(30);
