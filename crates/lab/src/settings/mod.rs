//! Settings of the host that an experiment changes: CPUs of threads, CPU weights and caps; and the number of look-ups
//! for each frame in a switch of the run.
//!
//! Every setting is read back. The [`Journal`], which records a setting of the host *before* it is made, undoes it:
//! when the journal is dropped, or in the next run after a crash.

mod affinity;
mod groups;
mod journal;
mod lookups;
mod undo;

pub use affinity::pin;
pub use groups::{Group, Groups, Hierarchy, Version};
pub use journal::{Journal, restore_leftovers};
pub use lookups::Lookups;
