//! What every benchmark needs of the host, and of the program.

use vm_harness::error::{Error, Result};

/// Complains unless we are root, `because` of what it does, and this is a release build.
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

/// Complains unless there are two CPUs, `for_whom` they are.
pub(super) fn two_cpus(for_whom: &str) -> Result<()> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Err(Error::Host(format!(
            "the benchmark needs {for_whom}: this host has one CPU"
        )));
    }
    Ok(())
}
