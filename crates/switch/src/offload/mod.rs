//! The software fallback of the link plane: what happens to a frame whose receiver has not
//! negotiated it as the sender made it.
//!
//! # Theory of operation
//!
//! A sender may leave two entries to the device: to finish a checksum (`NEEDS_CSUM`) and to cut a
//! frame of up to 64 KB into segments (GSO). A receiver says by its features which unfinished
//! frames it takes. For each frame and receiver:
//!
//! 1. [`plan()`] compares the frame's [`Offload`] with what the receiver [`Accepts`]. Most frames
//!    pass through untouched, and nothing below runs for them.
//! 2. [`Plan::Checksum`]: [`fill_checksum`] finishes the checksum in place.
//! 3. [`Plan::Segment`]: a [`Segmenter`] reads the headers once and then writes any segment,
//!    by number, into the caller's buffer. It keeps no state between segments, so a worker whose
//!    receiver is full drops the `Segmenter` and goes on later where it stopped.
//!
//! The frame is a private copy: a guest cannot change it while it is worked on. Its contents are
//! as hostile as the guest. Every length is checked against the frame before it is used, and the
//! work for one frame is bounded by [`MIN_GSO_SIZE`] and [`MAX_HEADERS`]. A frame that breaks a
//! rule is refused with an [`Untranslatable`], which the caller counts as a drop; it faults
//! nobody, for the same frame passes to a receiver that negotiated it.
//!
//! Nothing here allocates, blocks, or knows of rings and ports. The meaning of every step is that
//! of Linux' own segmentation, so that a guest sees what a bridge would have sent it.

mod checksum;
mod layout;
mod plan;
mod segmenter;
mod untranslatable;
mod wire;

#[cfg(test)]
pub(crate) mod frames;
#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;

pub use checksum::fill_checksum;
pub use layout::MAX_HEADERS;
pub use plan::{Accepts, Gso, Offload, Plan, plan};
pub use segmenter::{MIN_GSO_SIZE, Segment, Segmenter};
pub use untranslatable::Untranslatable;
