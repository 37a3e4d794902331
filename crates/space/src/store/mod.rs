//! What is in a space: files in folders, in slots. Touches no memory itself.
//!
//! A file is *unfinished* while it is written, and *published* once it is whole. An [`Object`] is a
//! published file as somebody is sent it. Files and objects share slots by count, so a slot returns
//! when the last one is done with it, whatever the guest has done to the file meanwhile; and a
//! write into a shared slot goes into another one.
//!
//! A folder that was removed while open keeps its place and is empty: nothing can be made in it,
//! for it has no name.

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
pub use ledger::{LAYOUT, Ledger, ledger_bytes};
pub use node::{Attributes, LAST_DATE, Lookup, MAX_NAME, MAX_NODES, Node, Object, ROOT, Usage};
pub use published::PublishedFile;
pub use slots::{Memory, Slot, SlotPool};
pub use tree::Store;
