//! Benchmarks that run natively, without VMs.

#![forbid(unsafe_code)]

mod cpus;
mod hugepages;
mod leftovers;
mod memory;
pub mod message;
mod needs;
pub mod operate;
mod output;
mod parse;
mod priority;
mod process;
pub mod space;
pub mod switch;
mod threads;
pub mod uplink;

/// Rounds, unless it is told. Five are the fewest whose median means something.
pub const ROUNDS: u32 = 5;
