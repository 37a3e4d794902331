//! The lab: real VMs, real traffic, honest figures.
//!
//! # Theory of operation
//!
//! 1. [`image`] makes a guest out of Debian packages: an unmodified kernel and an initramfs.
//! 2. [`accel`] finds out, by booting that kernel, whether KVM works here; else QEMU emulates.
//! 3. [`channel`] opens a way between VMs by its name ([`bridge`], the switch) and gives a NIC
//!    for each VM. [`direct`] joins running VMs by a channel that needs none.
//! 4. [`vm`] boots VMs with those NICs, runs commands in them and reads their CPU time.
//! 5. [`workload`] runs traffic between two VMs and reads its figures; [`stats`] sums them up.
//! 6. [`demo`] does all that for two channels, round by round in turn, and [`report`] writes it
//!    down as a page that needs nothing else.
//!
//! Whoever starts a thing owns it and ends it when dropped: QEMU, the switch, namespaces,
//! folders. Children are tied to us ([`host`]), so that not even SIGKILL leaves one running;
//! Ctrl-C is an ordinary error ([`interrupt`]); names carry their owner's process id
//! ([`scope`]), so that the next run removes what a crash left. Any step may fail; the error
//! says what to do.

#![forbid(unsafe_code)]

pub mod accel;
pub mod bench;
pub mod bridge;
pub mod channel;
pub mod cpu;
pub mod demo;
pub mod direct;
mod error;
pub mod host;
pub mod image;
pub mod instructions;
pub mod interrupt;
pub mod machine;
pub mod progress;
pub mod report;
pub mod scope;
pub mod stats;
pub mod study;
pub mod vm;
pub mod workload;

pub use error::{LabError, Result};
