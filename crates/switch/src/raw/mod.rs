//! The crate's only `unsafe` code: an instruction, and a system call that rustix has no words for.
#![allow(unsafe_code)]

pub(crate) mod packet;
pub(crate) mod ticks;
