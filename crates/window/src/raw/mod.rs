//! The crate's only `unsafe` code: mapping and accessing shared memory, and byte-range locks.
//!
//! The other side writes the memory at any time. The rules that keep this sound:
//! - no reference (`&` or `&mut`) to memory that another side can write is ever made, except to
//!   atomics;
//! - what is *interpreted* is read once, by atomic accesses, into private memory;
//! - payload is copied bytewise and never interpreted before the copy.
//!
//! Files behind mappings are sealed against shrinking ([`crate::memfd`]), so no access can be
//! behind their end.
#![allow(unsafe_code)]

mod aliased_copy;
mod bytes;
pub(crate) mod lease;
mod mapping;
mod own;
mod pieces;
mod prefetch;
mod processor;
mod ready;
mod slots;
mod streaming_copy;
pub mod ticks;
mod word;
mod words;

use std::io;

use rustix::io::Errno;

pub use bytes::SharedBytes;
pub(crate) use lease::Lease;
pub(crate) use mapping::{Access, Mapping};
pub(crate) use own::{Arena, Owned};
pub(crate) use processor::{EMULATION, hypervisor, is_emulated};
pub(crate) use ready::ready;
pub(crate) use slots::{Body, INLINE_BYTES, SHORT_BYTES, SHORT_WORDS, Slots};
pub(crate) use streaming_copy::{LINE, STREAMING_MIN};
pub(crate) use word::{LongWord, Word};
pub(crate) use words::Words;

/// Returns the error of this thread's last call of the kernel by libc.
fn last_error() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
