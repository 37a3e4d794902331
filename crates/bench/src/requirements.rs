//! Requirements of the benchmarks on the host and on the program.

use vm_harness::error::{Error, Result};

/// Returns an error unless the process is root (the error gives the reason `because`) and this is a release build.
pub(super) fn root(because: &str) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Error::Host(format!(
            "the benchmark {because}: run it as root"
        )));
    }
    if cfg!(debug_assertions) {
        return Err(Error::Host(
            "this is a debug build and its speed means nothing: build with `cargo build --release`"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Returns an error unless the machine has two CPUs; the error says what the CPUs are for, `for_whom`.
pub(super) fn two_cpus(for_whom: &str) -> Result<()> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(Error::Host(format!(
            "the benchmark needs {for_whom}: this host has one CPU"
        )));
    }
    Ok(())
}
