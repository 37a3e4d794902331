//! Things of the host that an experiment sets: CPUs of threads, CPU weights and caps.
//!
//! Whatever is set is read back, and is undone by the [`Journal`] that it is written into
//! *before* it is set: when the value is dropped, or by the next run after a crash.

mod affinity;
mod groups;
mod journal;

pub use affinity::pin;
pub use groups::{Group, Groups, Hierarchy, Version};
pub use journal::{Journal, restore_leftovers};
