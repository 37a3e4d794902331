//! The observer: what each VM and its backend do with the host's CPUs.
//!
//! # Theory of operation
//!
//! It asks nothing of the VMs and changes nothing: all comes from what the kernel counts anyway.
//!
//! 1. The finder ([`reader`]) looks through `/proc` for QEMU's processes, whoever started them,
//!    and for Vicinity's ([`command_line`]), and gives each thread a [`role`]: vCPU, main loop,
//!    I/O, vhost.
//! 2. [`reader::Reader::read`] reads totals ([`reading`]): of threads ([`counters`]), control
//!    groups ([`cgroup`]), KVM ([`kvm`]), taps ([`traffic`]), the [`host`] and its [`energy`]
//!    counters. Counters of Vicinity's ports are handed in.
//! 3. [`rates::report`] makes a [`report`] of two readings: XenMon's use, wait, block, executions,
//!    CPU and wait for each execution, for a VM's guest and for its backend. A worker of Vicinity
//!    that serves several VMs is shared out by what their ports moved; what nobody moved is
//!    charged to nobody, and said.
//!    Which VM ran after which is not in `/proc`: the kernel records it for whoever asks
//!    ([`switches`]).
//! 4. [`prometheus`] writes one reading as a text of counters.
//!
//! Who watches threads of its own choice, as the lab does, reads them with [`proc`] and makes
//! rates with [`work`].
//!
//! Reading and parsing are apart: parsers take text and are tested with texts of real kernels.
//! What may fail: nothing. A file that is gone or forbidden is a figure that is not there, and
//! the report says which and why. VMs and threads come and go between readings; ids are
//! recycled; counters start anew. None of it gives a negative rate.

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
