//! Changes settings for an experiment: on the host the CPUs of threads, CPU weights and caps; in a switch of the run
//! the number of look-ups for each frame.
//!
//! Every setting is read back. The [`Journal`] records a setting of the host *before* it is made, and undoes the
//! setting when the journal is dropped, or in the next run after a crash.

mod affinity;
mod groups;
mod journal;
mod lookups;
mod undo;

pub use affinity::pin;
pub use groups::{Group, Groups, Hierarchy, Version};
pub use journal::{Journal, restore_leftovers};
pub use lookups::Lookups;
