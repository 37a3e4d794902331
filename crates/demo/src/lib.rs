//! The demo: sends the same traffic between two real VMs over Vicinity's switch and over the baseline.
//!
//! # Theory of operation
//!
//! ```text
//!     VM 1 ─── NIC 1 ── bridge ──────────── NIC 1 ─── VM 2
//!       │                                               │
//!       └───── NIC 2 ── switch or direct ── NIC 2 ──────┘
//!
//!     round 1: bridge, switch   round 2: switch, bridge   …   (measure)
//!         │
//!         ▼
//!     samples ──▶ result.json, table (result) ──▶ report.html (page)
//! ```
//!
//! Each VM has one NIC on each channel, so both channels are measured in the same VMs, in the same run, in turn: other
//! programs of the machine disturb the figures of both. [`run`] measures and writes `result.json` and `report.html`.
//! [`shell()`] keeps the VMs running and opens a console for each; [`web()`] keeps them running with traffic, and serves
//! the page. [`messages()`] does the same comparison with messages beside TCP, and writes `message.json`; [`mpi()`] with MPI
//! programs on the message plane beside Open MPI's TCP, in four VMs, and writes `mpi.json`; [`sockets()`] with TCP programs
//! by AF_VSOCK, and writes `sockets.json`.

#![forbid(unsafe_code)]

#[cfg(test)]
mod example;
mod measure;
mod members;
mod messages;
mod metric;
mod mpi;
mod options;
mod page;
mod pair;
mod result;
mod sample;
mod shell;
mod sockets;
mod web;

use std::fs;

use vm_harness::error::{Context, Result};
use vm_harness::machine::Machine;
use vm_harness::progress::Progress;
use vm_harness::workload;

use pair::Pair;

pub use messages::{MessageResult, MessageSample, TcpSample, messages};
pub use metric::{METRICS, Metric};
pub use mpi::{MpiFigure, MpiResult, MpiSample, mpi, mpi_figures};
pub use options::{Durations, Options};
pub use result::{DemoResult, Ratio, Summary, Verdict};
pub use sample::{Cpu, Described, Sample};
pub use shell::shell;
pub use sockets::{SocketFiles, SocketResult, SocketSample, sockets};
pub use web::web;

/// Measures, writes `result.json` and `report.html` into the output folder, and returns the result.
///
/// # Errors
/// A VM does not run, or a figure cannot be read;
/// [`HarnessError::Interrupted`](vm_harness::error::HarnessError::Interrupted) after Ctrl-C, if
/// [`vm_harness::interrupt::install`] was called. In every case all VMs and channels have ended.
pub fn run(options: &Options, progress: &Progress) -> Result<DemoResult> {
    fs::create_dir_all(&options.output).context(|| format!("make {}", options.output.display()))?;
    let machine = Machine::describe()?;
    let pair = Pair::start(options, progress)?;
    let [_, server] = &pair.vms;
    workload::serve(server)?;
    let samples = measure::rounds(&pair, options, progress)?;
    let channels = pair.channels.each_ref().map(|channel| Described {
        name: channel.name().to_owned(),
        description: channel.description(),
    });
    let mut result = DemoResult {
        machine,
        accelerator: pair.accel,
        guest_kernel: pair.image.manifest.kernel_release.clone(),
        durations: options.durations,
        cpu_definition: measure::CPU_DEFINITION.to_owned(),
        summary: result::summarise(&channels, &samples),
        channels,
        samples,
        seconds: 0.0,
    };
    progress.step("stopping the VMs");
    drop(pair);
    result.seconds = progress.seconds();
    page::write(&result, &options.output)?;
    Ok(result)
}
