//! The process that is one network's data plane: started by the supervisor
//! ([`crate::serve`]) with the control socket as standard input, it serves until told to stop or
//! until the supervisor is gone.

use sandbox::Duty;
use switch::workers::Workers;

use super::start::{ProcessError, log_gaps, set_up, take_control_socket};

/// Serves the network with this name, which is used in the log only, with so many workers.
pub(crate) fn run(network: &str, workers: usize) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    let _span = tracing::error_span!("network", name = network).entered();
    set_up(&format!("net-{network}")).map_err(ProcessError::System)?;
    // What it opens, and what it asks the kernel once, comes before the sandbox closes.
    rustix::param::page_size();
    let workers = Workers::new(control, workers).map_err(ProcessError::System)?;
    log_gaps(sandbox::enter_process());
    vhost::reclaim::start(confine).map_err(ProcessError::System)?;
    workers.run(confine).map_err(ProcessError::Serving)
}

/// Confines a thread of a network's data plane.
fn confine() {
    log_gaps(sandbox::enter_thread(Duty::Network));
}
