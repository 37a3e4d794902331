//! An optional thread for each endpoint that makes progress while the program computes.
//!
//! The thread does not compete with a program that makes calls: while it sleeps inside the engine,
//! the next call has to wait until it has left.

use std::thread;
use std::time::Duration;

use crate::codes::{Result, Return};
use crate::shared::Shared;

/// The environment variable that enables the thread with the value `1`.
const ENABLE_VARIABLE: &str = "VICINITY_PROGRESS_THREAD";

/// After this time without a call, the program is assumed to compute.
const COMPUTE_DELAY: Duration = Duration::from_millis(1);

/// Starts the thread of an endpoint, if it is enabled. The thread ends when the endpoint is closed. The
/// endpoint of a serialized program has none: it would be a second thread.
pub(crate) fn start(shared: Shared) -> Result {
    if shared.is_serialized() || std::env::var_os(ENABLE_VARIABLE).is_none_or(|value| value != "1")
    {
        return Ok(());
    }
    let started = thread::Builder::new()
        .name("mx-progress".to_owned())
        .spawn(move || while progress_for_program(&shared).is_ok() {});
    started.map(drop).map_err(|_| Return::NO_RESOURCES)
}

fn progress_for_program(shared: &Shared) -> Result {
    let calls = shared.calls();
    thread::sleep(COMPUTE_DELAY);
    while shared.calls() == calls && shared.lock()?.progress_for_program()? {}
    // Fails if the endpoint is closed.
    shared.lock().map(drop)
}
