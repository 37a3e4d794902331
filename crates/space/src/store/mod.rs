//! The file system of a space: directories and files, whose bytes are stored in slots.
//!
//! The store keeps metadata only. It returns the places in the slots' memory at which its caller reads and writes ([`Extent`]), and has
//! the [`Memory`] copy and zero bytes.
//!
//! ```text
//!   Store (tree of nodes) -- File -- Content -- blocks --> Slot (reference count) --> SlotPool
//!      |                                ^
//!      v                                | clone
//!   Ledger (outlives the process)    Object: what a client or the push receives
//! ```
//!
//! A file is *unfinished* while a program in the guest has it open for writing, and *published* after the last such program
//! closed it. An [`Object`] is a snapshot of a published file for one transmission. Files and objects share slots by
//! reference count: a slot becomes free when its last user drops it, whatever the guest did to the file meanwhile. A write
//! to a shared slot goes to a new slot (copy on write).
//!
//! A directory that was removed while open keeps its inode and is empty. Nothing can be created in it, because it has no
//! name.

mod content;
mod error;
mod ledger;
mod names;
mod node;
mod persist;
mod published;
mod slots;
mod tree;

pub use content::{Content, Extent};
pub use error::StoreError;
pub use ledger::{LAYOUT_VERSION, Ledger, ledger_bytes};
pub use node::{Attributes, LAST_DATE, Lookup, MAX_NAME, MAX_NODES, Node, Object, ROOT, Usage};
pub use published::PublishedFile;
pub use slots::{Memory, Slot, SlotPool};
pub use tree::Store;
