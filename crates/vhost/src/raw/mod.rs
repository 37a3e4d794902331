//! The crate's only `unsafe` code: it maps and accesses a front-end's memory.
//!
//! There are three kinds of access, each behind a safe type:
//! - [`Mapping`] maps one memory region and unmaps it when dropped;
//! - [`Span`] is a piece of a mapping, tied to it by lifetime, for copying payload;
//! - [`RingMemory`] has the three parts of a split ring, for access to indices and descriptors.
//!
//! The guest and its front-end may write to this memory at any time. These rules keep access sound:
//! - the code never creates a reference (`&` or `&mut`) to guest memory, only raw pointers;
//! - data that is *interpreted* (indices, descriptors, headers) is read once, with volatile or atomic
//!   accesses, into private memory, and only the private copy is inspected;
//! - data that is only *carried* (payload) is copied bytewise and never inspected, so a concurrent
//!   write by the guest can at worst corrupt the guest's own frame.
//!
//! A front-end may also truncate the file behind a mapping; an access to such a page raises `SIGBUS`.
//! [`sigbus`] turns the signal into a flag on the mapping. A front-end may also make a call descriptor
//! block; an [`alarm`] interrupts the write.
#![allow(unsafe_code)]

pub mod alarm;
mod foreign;
mod huge;
pub(crate) mod io;
mod mapping;
mod pages;
mod prefetch;
mod ring;
pub mod sigbus;
mod span;

pub use foreign::ForeignFd;
pub use huge::prefer_huge_pages;
pub use mapping::{MapError, Mapping};
pub(crate) use pages::Pages;
pub use prefetch::prefetch;
pub use ring::{Descriptor, Part, RingError, RingMemory};
pub use span::Span;
