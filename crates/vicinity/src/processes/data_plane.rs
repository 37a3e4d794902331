//! The process that is one network's data plane: started by the supervisor
//! ([`crate::serve`]) with the control socket as standard input, it serves until told to stop or
//! until the supervisor is gone.

use sandbox::Duty;
use switch::workers::Workers;

use super::start::{DataPlaneError, log_gaps, settle, take_control};

/// Serve the network with this name, which is used in the log only, with so many workers.
pub(crate) fn run(network: &str, workers: usize) -> Result<(), DataPlaneError> {
    sandbox::close_inherited().map_err(DataPlaneError::System)?;
    let control = take_control().map_err(DataPlaneError::Control)?;
    let _span = tracing::error_span!("network", name = network).entered();
    settle(&format!("net-{network}")).map_err(DataPlaneError::System)?;
    // What it opens, and what it asks the kernel once, comes before the sandbox closes.
    rustix::param::page_size();
    let workers = Workers::new(control, workers).map_err(DataPlaneError::System)?;
    log_gaps(sandbox::enter_process());
    vhost::reclaim::start(confine).map_err(DataPlaneError::System)?;
    workers.run(confine).map_err(DataPlaneError::Serving)
}

/// Confine a thread of a network's data plane.
fn confine() {
    log_gaps(sandbox::enter_thread(Duty::Network));
}
