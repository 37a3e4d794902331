//! What benchmarks, demo and studies share of their reports.

#![forbid(unsafe_code)]

pub mod html;
pub mod inference;
pub mod message_perf;
pub mod stats;
pub mod target;
