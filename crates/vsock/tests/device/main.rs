//! The device with front-ends that are drivers of guests: well-behaved ones, and hostile ones beside them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod backpressure;
mod figures;
mod host;
mod hostile;
mod report;
mod resume;
mod rig;
mod streams;
