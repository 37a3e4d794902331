//! Repeats the papers' measurements on real VMs.
//!
//! # Theory of operation
//!
//! ```text
//!     catalogue ── experiments, sweeps ──▶ run ◀── probe: what this host can run
//!                                           │
//!                       one cell at a time  ▼
//!                                        measurer ──▶ measure ──▶ testbed: VMs, channels, second host
//!                                           │                        │
//!                                           │ Sample                 └─ settings: CPUs, cgroups, journal
//!                                           ▼
//!                              sample_log: samples.ndjson, manifest
//!                                           │
//!                                           ▼
//!                        claim, statistic ──▶ verdict ──▶ report: HTML, Markdown, CSV
//! ```
//!
//! 1. [`catalogue`] describes every experiment as data; [`probe`] determines which of them this host can run.
//! 2. A sweep's cells are measured in blocks: each block has every cell once, in an order drawn from the run's seed.
//!    A disturbance of the machine affects cells that are neighbours in time, and claims compare cells within a block
//!    only.
//! 3. Each measured cell is a [`sample::Sample`], appended to `samples.ndjson` at once: a crash loses the cell that
//!    was being measured and nothing else. A run that was cut short is resumed: the cells that the file lacks are
//!    measured.
//! 4. [`claim`] turns samples into evidence, [`report::inference`](::report::inference) judges it.
//!
//! If a cell fails (a VM died, a server did not start, the kernel refused a setting), its sample holds the reason and
//! the run continues. The journal of [`settings`] undoes the settings that the run made on the host.

#![forbid(unsafe_code)]

pub mod catalogue;
pub mod cell_filter;
pub mod claim;
mod cpu_distance;
pub mod http;
pub mod manifest;
pub mod measure;
mod measurer;
pub mod probe;
pub mod report;
pub mod run;
pub mod sample;
mod sample_log;
pub mod second_host;
pub mod settings;
mod statistic;
pub mod testbed;
pub mod thread_times;
pub mod verdict;
