//! The memory plane's process: one space, its file system in a VM, and its HTTP clients or its push to a store.
//!
//! # Theory of operation
//!
//! A space is a sealed memfd that is divided into slots ([`space_memory`]), and a store that maps files to slots ([`space::store`]).
//!
//! ```text
//!            VM                                the space's process                             network
//!  +---------------------+      +------------------------------------------------------+
//!  | program -> virtiofs |      | device --> file_system --+     +-- http <-----------------> clients (HTTP/1.1, HTTP/2, TLS)
//!  +---------------------+      | (thread for the VM)      |     |   access, response, |
//!            |                  |                          |     |   connection_limit  |
//!            |                  |                          v     v                     |
//!   QEMU: vhost-user-fs <-------->            SpaceState: Store (one lock)             |
//!                               |              |                 ^                     |
//!                               | SlotFile: slots (memfd)        +-- push ------------------> store (S3, HTTP PUT, raw TCP)
//!                               |           ledger (memfd)           put, sign, raw    |
//!                               |           ^   both: throttle, rate, zero_copy        |
//!                               +-----------|------------------------------------------+
//!                          the supervisor keeps both memfds
//! ```
//!
//! 1. The VM mounts the space by virtio-fs. QEMU's `vhost-user-fs-pci` device forwards the guest's requests (`device`), the
//!    library `fuse-backend-rs` parses them, and `file_system` executes them on the store. A write is copied once, from the
//!    VM's memory into slots, and is answered afterwards. If the space is full, the write stays unanswered, so the program
//!    in the VM waits; the device retries it when slots become free. No directory of the host is behind the file system, and
//!    it has no symbolic links, so no path leads out of the space.
//! 2. Clients that [`access`] admits fetch published files by HTTP/1.1 and HTTP/2, with or without TLS ([`http`],
//!    `response`). A response keeps the slots of its object in use until its last byte was copied out of them, or until the
//!    kernel has completed its zero-copy sends (`zero_copy`), whatever the VM does to the file meanwhile.
//! 3. Instead of serving clients, a space can push each published file to a store ([`push`]).
//!
//! Published files are recorded in a ledger ([`space_memory::LedgerFile`]) in a second memfd. The supervisor keeps both memfds, so a
//! process that starts after another one was killed restores every acknowledged file.
//!
//! The guest is hostile: it can only fill its own space. Clients are hostile, too: their number and their time are limited.
//!
//! One thread serves the VM and one serves the clients or pushes. They share the store behind one lock, which no thread
//! holds while it waits.
//!
//! # Example
//!
//! A space of 16 slots of 64 KiB, with one published file:
//!
//! ```
//! use std::os::unix::fs::FileExt;
//! use std::time::Duration;
//!
//! use memory_plane::SpaceState;
//! use space::store::{Attributes, ROOT};
//!
//! let state = SpaceState::new("example", 64 << 10, 16, 16)?;
//! let mut store = state.store();
//! let file = store.create(ROOT, b"greeting.txt", false, Attributes::default())?;
//! store.open(file, true)?;
//! for (offset, _length) in store.write(file, 0, 5, Duration::ZERO)? {
//!     state.slot_file().file().write_all_at(b"hello", offset)?;
//! }
//! store.close(file, true);
//! drop(store);
//! assert_eq!((state.figures().published, state.figures().used), (1, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod access;
mod body;
mod connection_limit;
mod content_type;
pub mod device;
mod file_system;
mod fuse_types;
pub mod http;
mod limits;
pub mod push;
mod push_status_file;
mod rate;
mod raw;
mod response;
pub mod space_memory;
mod space_state;
mod throttle;
pub mod tls;
mod zero_copy;

pub use device::serve_vm;
pub use space_state::{Figures, SpaceState};
