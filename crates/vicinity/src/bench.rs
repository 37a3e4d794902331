//! `vicinity bench`: the data path, measured natively.

use std::path::Path;

use lab::bench::{self, Options, SIZES};

use crate::failure::Failure;

/// Measure the switch against OVS-DPDK in `rounds` rounds, write the report to `output`, and
/// return its table.
pub(crate) fn switch(rounds: u32, output: &Path) -> Result<String, Failure> {
    let options = Options {
        rounds,
        sizes: SIZES.to_vec(),
        program: std::env::current_exe().map_err(Failure::Program)?,
        output: output.to_owned(),
    };
    let report = bench::switch(&options)?;
    Ok(format!("{report}\nReport: {}\n", output.display()))
}
