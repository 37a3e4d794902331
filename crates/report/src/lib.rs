//! Statistics, targets and the page style that the benchmarks, the demo and the studies share.
//!
//! # Theory of operation
//!
//! ```text
//!     samples of rounds or blocks
//!        │
//!        ├──▶ stats       medians, quantiles, ratios within a round ──▶ target: kept or not
//!        └──▶ inference   intervals, p-values, Holm's correction    ──▶ verdict of a claim
//!                                                                         │
//!     message_perf: figures as `vicinity message perf --json` has them    ▼
//!                                                              html: page, style, escaping
//! ```
//!
//! [`stats`] and [`inference`] are pure functions of samples: they read no clock and no file, and their random numbers
//! are the same in each run. [`target`] compares a figure with its target. [`html`] makes pages that need
//! no network. The crate measures nothing.
//!
//! # Example
//!
//! ```
//! use report::stats::paired_ratio;
//! use report::target::Target;
//!
//! // Each round measured both; the second round was slow for both.
//! let ratio = paired_ratio(&[10.0, 5.0, 10.0], &[20.0, 10.0, 21.0]);
//! let target = Target::at_least("frames/s against the peer", ratio, 1.5);
//! assert!(target.reached);
//! ```

#![forbid(unsafe_code)]

pub mod html;
pub mod inference;
pub mod message_perf;
pub mod stats;
pub mod target;
