//! The papers' measurements, run again on real VMs.
//!
//! # Theory of operation
//!
//! 1. [`catalogue`] has every experiment as data; [`probe`] says which of them this host can run.
//! 2. A sweep's cells are measured in blocks: each block has every cell once, in an order drawn
//!    from the run's seed. What disturbs the machine disturbs neighbours in time, and claims
//!    compare cells within a block only.
//! 3. Each measured cell is a [`sample::Sample`], appended to `samples.ndjson` at once: a crash
//!    loses the cell that was being measured and nothing else; a run that was cut short is
//!    resumed by measuring what the file lacks.
//! 4. [`claim`] turns samples into evidence, [`report::inference`](::report::inference) judges it.
//!
//! A cell that fails (a VM died, a server did not come up, a knob refused) is a sample with its
//! reason; the run goes on. What was set on the host is undone by [`knob`]'s journal.

mod book;
pub mod catalogue;
pub mod claim;
mod distance;
pub mod http;

pub mod knob;
pub mod manifest;
pub mod measure;
pub mod only;
pub mod probe;
pub mod remote;
pub mod report;
pub mod run;
pub mod sample;
mod stage;
mod statistic;
pub mod verdict;
pub mod watch;
pub mod world;
