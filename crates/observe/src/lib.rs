//! The observer: measures how each VM and its back-end use the host's CPUs.
//!
//! # Theory of operation
//!
//! ```text
//!  /proc, /sys, KVM ─▶ finder, parsers ─▶ Reading ─┬─▶ rates ─▶ report
//!  counters of Vicinity's ports ─────────▶         └─▶ prometheus
//! ```
//!
//! The observer sends nothing to the VMs and changes nothing: it reads counters that the kernel keeps
//! anyway.
//!
//! 1. The finder ([`reader`]) searches `/proc` for QEMU's processes, whichever program started them,
//!    and for Vicinity's ([`command_line`]), and gives each thread a [`role`]: vCPU, main loop,
//!    I/O, vhost.
//! 2. [`reader::Reader::read`] reads totals ([`reading`]): of threads ([`counters`]), control
//!    groups ([`cgroup`]), KVM ([`kvm`]), taps ([`traffic`]), the [`host`] and its [`energy`]
//!    counters. The caller passes in the counters of Vicinity's ports.
//! 3. [`rates::report`] makes a [`report`] of two readings: XenMon's use, wait, block, executions,
//!    CPU and wait for each execution, for a VM's guest and for its backend. A worker of Vicinity
//!    that serves several VMs is charged to them in proportion to what their ports moved. Time in
//!    which no port moved anything is charged to no VM, and the report shows it.
//!    `/proc` does not say which VM ran after which: the kernel records that on request
//!    ([`switches`]).
//! 4. [`prometheus`] writes one reading as a text of counters.
//!
//! A program that observes threads of its own choice, as the lab does, reads them with [`proc`] and makes
//! rates with [`work`].
//!
//! Reading and parsing are separate: parsers take text and are tested with texts of real kernels.
//! No call fails. A file that is gone or that may not be read gives no figure, and
//! the report says which file and why. Between two readings VMs and threads start and end, the kernel
//! reuses ids, and counters restart at zero. None of these gives a negative rate.

#![forbid(unsafe_code)]
#![allow(
    clippy::cast_precision_loss,
    reason = "rates are for people: 53 bits are enough"
)]

mod between;
pub mod cgroup;
pub mod command_line;
pub mod counters;
pub mod energy;
mod finder;
pub mod host;
pub mod kvm;
mod limits;
mod pairs;
pub mod proc;
pub mod prometheus;
pub mod rates;
pub mod reader;
pub mod reading;
pub mod report;
pub mod role;
mod share;
pub mod switches;
mod text;
pub mod traffic;
pub mod work;
