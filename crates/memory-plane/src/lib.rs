//! The memory plane's process: a space, its folder in a VM, its objects for clients.
//!
//! # Theory of operation
//!
//! A space is a sealed memfd divided into slots ([`ram`]), and a store that says what lies in which
//! ([`space::store`]). Two sides work on it:
//!
//! 1. The VM has it as a folder, by virtio-fs: QEMU's `vhost-user-fs` device leads the guest's
//!    requests here (`device`), a library takes them apart, and `folder` carries them out on the
//!    store. A write is copied once, from the VM's memory into slots, and answered when it lies
//!    there. One that finds the space full is set aside, unanswered, so the program in the VM
//!    waits; when slots return, it is tried again. There is no folder of the host behind it, no
//!    symbolic link and no way up: a path cannot lead anywhere else.
//! 2. Clients fetch what was published by HTTP/1.1 and HTTP/2, with TLS or without ([`http`],
//!    `answer`), if [`access`] lets them. An answer holds the slots of its object until its last
//!    byte was copied out of them, or the kernel is done with those that it was lent (`zero_copy`), whatever the
//!    VM does to the file meanwhile.
//!
//! Or the space pushes: what is published goes to a store by itself ([`push`]).
//!
//! What is published is written down in a ledger ([`ram::Notes`]), memory like the slots': the supervisor
//! keeps both, so a process that is started after one was killed has what was acknowledged.
//!
//! The guest is hostile: all it can do is fill its own space. Clients are too: there are limits on
//! how many there are and how long they take.
//!
//! One thread works for the VM, one for clients; what they share is the store, behind one lock,
//! which is never held while waiting.
#![deny(unsafe_code)]

pub mod access;
mod body;
mod content_type;
pub mod device;
mod folder;
mod guest;
pub mod http;
mod limits;
mod places;
pub mod push;
mod push_status_file;
pub mod ram;
mod rate;
mod raw;
mod response;
mod shared;
mod throttle;
pub mod tls;
mod zero_copy;

pub use device::serve_vm;
pub use shared::{Figures, Shared};
