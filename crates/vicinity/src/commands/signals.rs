//! Tells a command that runs until SIGINT or SIGTERM whether to continue.

use vm_harness::interrupt;

/// Returns whether this process has not yet received such a signal.
pub(crate) fn keep_running() -> bool {
    interrupt::check().is_ok()
}
