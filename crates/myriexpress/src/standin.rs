//! A thread for each endpoint that makes progress while the program computes, if it wants one.
//!
//! It keeps away from a program that calls: to sleep inside the endpoint is to make the next call
//! wait until this thread has left it.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::codes::{Result, Return};
use crate::shared::Shared;

/// The variable that asks for it, by being `1`.
const VARIABLE: &str = "VICINITY_PROGRESS_THREAD";

/// A program that has not called for so long computes.
const PATIENCE: Duration = Duration::from_millis(1);

/// Stand in for the program at this endpoint, until that is closed.
pub(crate) fn begin(shared: Arc<Shared>) -> Result {
    if std::env::var_os(VARIABLE).is_none_or(|value| value != "1") {
        return Ok(());
    }
    let started = thread::Builder::new()
        .name("mx-progress".to_owned())
        .spawn(move || while stand_in(&shared).is_ok() {});
    started.map(drop).map_err(|_| Return::NO_RESOURCES)
}

fn stand_in(shared: &Shared) -> Result {
    let calls = shared.calls();
    thread::sleep(PATIENCE);
    while shared.calls() == calls && shared.lock()?.stand_in()? {}
    // To find out whether it is closed.
    shared.lock().map(drop)
}
