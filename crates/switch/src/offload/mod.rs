//! Software offloads: segmentation and checksums for receivers that have not negotiated the offloads of a
//! frame.
//!
//! # Theory of operation
//!
//! A sender may leave two tasks to the device: to complete a checksum (`NEEDS_CSUM`), and to segment a
//! frame of up to 64 KB (GSO). The features of a receiver tell which of these frames it accepts. For each
//! frame and receiver:
//!
//! ```text
//! frame's Offload ----.           .-> PassThrough: the frame is delivered unchanged
//!                      >- plan() -+-> Checksum:    fill_checksum
//! receiver's Accepts -'           '-> Segment:     Segmenter::write(0), write(1), ...
//! ```
//!
//! 1. [`plan()`] compares the frame's [`Offload`] with what the receiver [`Accepts`]. Most frames pass through
//!    unchanged, and the following steps do not run for them.
//! 2. [`Plan::Checksum`]: [`fill_checksum`] completes the checksum in place.
//! 3. [`Plan::Segment`]: a [`Segmenter`] parses the headers once, and then writes any segment, by its
//!    index, into the caller's buffer. It keeps no state between segments, so a worker whose receiver is
//!    full drops the `Segmenter` and later resumes with the next index.
//!
//! The frame is a private copy, which a guest cannot change. Its contents are untrusted. The code checks
//! every length against the frame before it uses it, and [`MIN_GSO_SIZE`] and [`MAX_HEADERS`] bound the
//! work for one frame. A frame that breaks a rule is refused with an [`Untranslatable`], which the caller
//! counts as a drop. It is not a fault of the port, because the same frame passes to a receiver that
//! negotiated its offloads.
//!
//! Nothing here allocates or blocks, and nothing depends on rings or ports. Each step has the semantics of
//! Linux' own segmentation, so that a guest receives what a Linux bridge would have sent.

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
