//! `vicinity bench`: the data path, measured natively.

use std::path::Path;

use lab::bench::{self, Options, Part};
use lab::progress::Progress;

use crate::demo;
use crate::failure::Failure;

/// Measure the switch against OVS-DPDK in `rounds` rounds: these `parts`, with frames of these
/// `sizes`. Write the report to `output`, and return its table.
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
    let report = bench::switch(&options, &Progress::start())?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}
