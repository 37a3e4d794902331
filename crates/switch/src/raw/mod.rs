//! The crate's only `unsafe` code: an instruction, a system call that rustix does not support, and memory
//! that is shared with the kernel.
#![allow(unsafe_code)]

pub(crate) mod packet;
pub(crate) mod ticks;
pub(crate) mod xdp;
