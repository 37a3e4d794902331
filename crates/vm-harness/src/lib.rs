//! Guest images, VMs, the channels between them, and the programs of the host that they use.
//!
//! # Theory of operation
//!
//! ```text
//!                 image ──▶ kernel, initramfs
//!                             │
//!     accel ──▶ KVM or TCG    ▼
//!                 │      ┌─────────┐  commands   ┌─────────┐
//!                 └─────▶│ vm: VM 1│◀── agent ──▶│ vm: VM 2│   workload: iperf3, sockperf
//!                        └────┬────┘             └────┬────┘
//!                             │ NIC                   │ NIC
//!                        ┌────┴───────────────────────┴────┐
//!     channels::open ──▶ │ channel: bridge, switch, direct │
//!                        └─────────────────────────────────┘
//!     host, scope, interrupt: processes, names and signals, so that nothing is left behind
//! ```
//!
//! 1. [`image`] builds a guest from Debian packages: an unmodified kernel and an initramfs.
//! 2. [`accel`] boots that kernel to find out whether KVM works on this host; if not, QEMU emulates (TCG).
//! 3. [`channels::open`] opens a channel between VMs by its name ([`bridge`], [`switch`], [`direct`]). A
//!    [`channel::Channel`] provides a NIC for each VM, or joins VMs that already run.
//! 4. [`vm`] boots VMs with those NICs, runs commands in them and reads their CPU time.
//! 5. [`workload`] runs traffic between two VMs and reads its figures; [`mpi`] runs MPI jobs in several.
//!
//! A value that starts something owns it and ends it when it is dropped: QEMU, the switch, namespaces, folders. The
//! kernel kills the children when this process dies ([`host`]), so even SIGKILL leaves none running. Ctrl-C is an
//! ordinary error ([`interrupt`]). Names carry the process id of their owner ([`scope`]), so that the next run removes
//! what a crash left. Any step may fail; the error says what to do ([`error`]).
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//!
//! use vm_harness::image::Recipe;
//! use vm_harness::vm::{Spec, Vm};
//!
//! # fn main() -> vm_harness::error::Result<()> {
//! let image = Recipe::default().build(Path::new("target/lab"))?;
//! let vm = Vm::boot(&image, Spec::new("vm1", Path::new("target/logs")))?;
//! vm.wait_ready(Duration::from_secs(120))?;
//! let kernel = vm.check("uname -r", Duration::from_secs(10))?;
//! # drop(kernel);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod accel;
pub mod affinity;
pub mod bridge;
pub mod channel;
pub mod channels;
pub mod cpu;
pub mod cpu_distance;
pub mod direct;
pub mod error;
pub mod guest_module;
pub mod hardware_counter;
pub mod host;
pub mod hugepages;
pub mod image;
pub mod instructions;
pub mod interrupt;
pub mod machine;
pub mod message_region;
pub mod mpi;
pub mod progress;
pub mod scope;
pub mod switch;
mod time_stamp_counter;
pub mod vm;
pub mod workload;
