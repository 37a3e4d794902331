//! The crate's only `unsafe` code: an instruction, a system call that rustix has no words for, and memory
//! that is shared with the kernel.
#![allow(unsafe_code)]

pub(crate) mod packet;
pub(crate) mod ticks;
pub(crate) mod xdp;
