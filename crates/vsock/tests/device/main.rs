//! The device with front-ends that are drivers of guests: well-behaved ones, and hostile ones beside them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod backpressure;
mod host;
mod hostile;
mod resume;
mod rig;
mod streams;
