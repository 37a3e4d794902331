//! The data plane of a network. The supervisor ([`crate::serve`]) starts this process with the control socket as
//! standard input. The process serves until the supervisor sends the order to stop, or is gone.

use sandbox::ProcessKind;
use switch::workers::Workers;

use super::start::{ProcessError, log_missing_stages, set_up, take_control_socket};

/// Serves a network with this number of workers. `network` is its name, for the log.
pub(crate) fn run(network: &str, workers: usize) -> Result<(), ProcessError> {
    sandbox::close_inherited().map_err(ProcessError::System)?;
    let control = take_control_socket().map_err(ProcessError::Control)?;
    let _span = tracing::error_span!("network", name = network).entered();
    set_up(&format!("net-{network}")).map_err(ProcessError::System)?;
    // Opens files, and asks the kernel for constants, before the sandbox forbids it.
    rustix::param::page_size();
    let workers = Workers::new(control, workers).map_err(ProcessError::System)?;
    log_missing_stages(sandbox::enter_process());
    vhost::reclaim::start(confine).map_err(ProcessError::System)?;
    workers.run(confine).map_err(ProcessError::Serving)
}

/// Confines a thread of a network's data plane.
fn confine() {
    log_missing_stages(sandbox::enter_thread(ProcessKind::Network));
}
