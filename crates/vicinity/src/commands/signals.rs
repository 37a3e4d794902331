//! Whether a command that runs until SIGINT or SIGTERM is to go on.

use vm_harness::interrupt;

/// Returns whether no such signal came yet.
pub(crate) fn keep_running() -> bool {
    interrupt::check().is_ok()
}
