//! The crate's only `unsafe` code: mapping a front-end's memory and touching it.
//!
//! Three kinds of access exist, each behind a safe type:
//! - [`Mapping`] maps one memory region and unmaps it when dropped;
//! - [`Span`] is a piece of a mapping, tied to it by lifetime, for copying payload;
//! - [`RingMemory`] holds the three parts of a split ring, for index and descriptor access.
//!
//! Guest memory changes under our hands. The rules that keep this sound:
//! - no reference (`&` or `&mut`) to guest memory is ever made, only raw pointers;
//! - what is *interpreted* (indices, descriptors, headers) is read once, with volatile or atomic
//!   accesses, into private memory, and only the private copy is looked at;
//! - what is only *carried* (payload) is copied bytewise and never looked at, so a concurrent
//!   write by the guest can at worst corrupt the guest's own frame.
//!
//! A front-end may also truncate the file behind a mapping; touching such a page raises
//! `SIGBUS`. [`sigbus`] turns that into a flag on the mapping. And it may make a descriptor block
//! that we write to: an [`alarm`] ends the wait.
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

pub use foreign::Foreign;
pub use huge::prefer_huge_pages;
pub use mapping::{MapError, Mapping};
pub(crate) use pages::Pages;
pub use prefetch::prefetch;
pub use ring::{Descriptor, Part, RingError, RingMemory};
pub use span::Span;
