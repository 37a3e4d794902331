//! The message plane's gateway of this host's own programs.
//!
//! The gateway is not confined, because it opens programs' sockets by their names. It checks what the data plane sends
//! as strictly as what a VM sends.

use std::path::Path;

use message::MessageError;
use message::remote::{BOARD, Gateway, Transport};

use super::protocol::keep_running;
use crate::message_uplink::HOST;
use crate::processes::start::{ProcessError, set_up, take_control_socket};
use crate::runtime_paths::member_socket;

/// Serves this host's own programs.
pub(crate) fn run(runtime_dir: &Path) -> Result<(), ProcessError> {
    let control = take_control_socket().map_err(ProcessError::Control)?;
    set_up("message-host").map_err(ProcessError::System)?;
    let board = runtime_dir.join(BOARD);
    let way = Transport::Socket(member_socket(runtime_dir, HOST));
    let run = || -> Result<(), MessageError> {
        let mut gateway = Gateway::join(&board, &way)?;
        gateway.watch(&control)?;
        gateway.run(|| keep_running(&control))
    };
    run().map_err(ProcessError::Messages)
}
