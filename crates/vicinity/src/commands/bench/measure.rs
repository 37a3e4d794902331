//! `vicinity bench`: data path, message plane and memory plane, measured natively.

use std::path::Path;

use bench::switch::{self, Options, Part};
use bench::{message, operate, space, uplink};
use vm_harness::progress::Progress;

use crate::commands::demo;
use crate::commands::failure::Failure;

/// Measures the switch against OVS-DPDK in `rounds` rounds: these `parts`, with frames of these
/// `sizes`. Writes the report to `output`, and returns its table.
pub(crate) fn switch(
    rounds: u32,
    sizes: &[u16],
    parts: &[Part],
    output: &Path,
) -> Result<String, Failure> {
    let program = std::env::current_exe().map_err(Failure::Program)?;
    let options = Options {
        rounds,
        sizes: sizes.to_vec(),
        parts: parts.to_vec(),
        output: output.to_owned(),
        ..Options::new(&program, Path::new(demo::FOLDER))
    };
    let report = switch::switch(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}

/// Measures in `rounds` rounds the cost of changing, reading and watching a switch. Writes the report to
/// `output`, and returns its table.
pub(crate) fn operate(rounds: u32, output: &Path) -> Result<String, Failure> {
    let options = operate::Options {
        rounds,
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        output: output.to_owned(),
    };
    let report = operate::operate(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}

/// Measures the message plane against UCX and TCP in `rounds` rounds, with messages of these
/// `lengths`. Writes the report to `output`, and returns its table.
pub(crate) fn message(rounds: u32, lengths: &[u32], output: &Path) -> Result<String, Failure> {
    let options = message::Options {
        rounds,
        lengths: lengths.to_vec(),
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        output: output.to_owned(),
    };
    let report = message::message(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}

/// Measures messages between two hosts in `rounds` rounds, with a link of each of these `rates` in
/// Mbit/s. Writes the report to `output`, and returns its table.
pub(crate) fn uplink(rounds: u32, rates: &[u32], output: &Path) -> Result<String, Failure> {
    let options = uplink::Options {
        rounds,
        rates: rates.to_vec(),
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        output: output.to_owned(),
    };
    let report = uplink::uplink(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}

/// Measures a space's server against nginx in `rounds` rounds, with files of these `lengths`. Writes the
/// report to `output`, and returns its table.
pub(crate) fn space(rounds: u32, lengths: &[u32], output: &Path) -> Result<String, Failure> {
    let options = space::Options {
        rounds,
        lengths: lengths.to_vec(),
        vicinity: std::env::current_exe().map_err(Failure::Program)?,
        output: output.to_owned(),
    };
    let report = space::space(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}
