//! Scheduling priority of a thread.

use rustix::process::setpriority_process;

/// The lowest priority there is (nice(2)).
const LOWEST: i32 = 19;

/// Gives this thread the lowest priority. A capture runs with it: where CPUs are short, frames are missing in
/// the file, and no other thread is slower for it.
pub(crate) fn lower() {
    if let Err(error) = setpriority_process(None, LOWEST) {
        tracing::debug!(%error, "cannot lower the priority of the capture");
    }
}
