//! Nodes in programs that may not use the interface, whose frames all travel in datagrams, on a simulated network.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "tests"
)]

mod connections;
mod frames;
mod hostile;
mod limits;
mod network;
