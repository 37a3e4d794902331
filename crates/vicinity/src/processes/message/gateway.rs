//! The message plane's gateway of this host's own programs.
//!
//! It opens programs' sockets by their names, so it is not confined. What the data plane says to it is checked
//! as what a VM says is.

use std::path::Path;

use message::MessageError;
use message::remote::{Gateway, Transport};

use super::protocol::is_to_go_on;
use crate::message_uplink::HOST;
use crate::processes::start::{DataPlaneError, settle, take_control};
use crate::runtime_paths::{BOARD, member_socket};

/// Be the gateway of this host's own programs.
pub(crate) fn run(runtime_dir: &Path) -> Result<(), DataPlaneError> {
    let control = take_control().map_err(DataPlaneError::Control)?;
    settle("message-host").map_err(DataPlaneError::System)?;
    let board = runtime_dir.join(BOARD);
    let way = Transport::Socket(member_socket(runtime_dir, HOST));
    let run = || -> Result<(), MessageError> {
        let mut gateway = Gateway::join(&board, &way)?;
        gateway.watch(&control)?;
        gateway.run(|| is_to_go_on(&control))
    };
    run().map_err(DataPlaneError::Messages)
}
