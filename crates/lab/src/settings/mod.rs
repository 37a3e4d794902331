//! Things of the host that an experiment sets: CPUs of threads, CPU weights and caps; and how often
//! a switch of the run looks frames up.
//!
//! Whatever is set is read back. What is the host's is undone by the [`Journal`] that it is written
//! into *before* it is set: when the value is dropped, or by the next run after a crash.

mod affinity;
mod groups;
mod journal;
mod lookups;
mod undo;

pub use affinity::pin;
pub use groups::{Group, Groups, Hierarchy, Version};
pub use journal::{Journal, restore_leftovers};
pub use lookups::Lookups;
