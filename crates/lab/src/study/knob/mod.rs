//! Things of the host that an experiment sets: CPUs of threads, CPU weights.
//!
//! Whatever is set is read back, and is undone by the [`Journal`] that it is written into
//! *before* it is set: when the value is dropped, or by the next run after a crash.

mod affinity;
mod journal;
mod weights;

pub use affinity::pin;
pub use journal::{Journal, restore_leftovers};
pub use weights::{Groups, Weights};
