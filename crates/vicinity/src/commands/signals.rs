//! Whether a command that runs until SIGINT or SIGTERM is to go on.

use lab::interrupt;

/// Returns whether no such signal came yet.
pub(crate) fn go_on() -> bool {
    interrupt::check().is_ok()
}
