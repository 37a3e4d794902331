//! What all processes of the supervisor have in common: their subcommands, how they are started, how they take their
//! control socket, and their errors.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;

use signal_hook::consts::{SIGINT, SIGTERM};
use switch::control::ControlSocket;

/// Name of the subcommand that is a data plane.
pub(crate) const DATA_PLANE: &str = "data-plane";

/// Names of the subcommands that are the message plane's processes.
pub(crate) const MESSAGE_PLANE: &str = "message-plane";
pub(crate) const MESSAGE_GATEWAY: &str = "message-gateway";
pub(crate) const MESSAGE_UPLINK: &str = "message-uplink";

/// Name of the subcommand that serves a trust group of the direct channel.
pub(crate) const DIRECT_GROUP: &str = "direct-group";

/// Name of the subcommand that is the sockets plane of some VMs.
pub(crate) const VSOCK: &str = "vsock-plane";

/// Name of the subcommand that has a VM's space.
pub(crate) const SPACE: &str = "space-process";

/// Why a process failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    /// A person started it.
    #[error(
        "standard input is not a control socket ({0}); do not run this command, `vicinity serve` starts it"
    )]
    Control(io::Error),
    /// The system refuses something that the process needs.
    #[error("the data plane cannot start: {0}")]
    System(io::Error),
    /// Serving.
    #[error("the data plane failed: {0}")]
    Serving(io::Error),
    /// The message plane.
    #[error("the message plane failed: {0}")]
    Messages(message::MessageError),
    /// A group of the direct channel.
    #[error("the trust group failed: {0}")]
    Direct(direct::DirectError),
    /// A space's certificate or key.
    #[error(transparent)]
    Tls(memory_plane::tls::TlsError),
    /// Where a space pushes to.
    #[error(
        "internal error, report it as a bug: the supervisor passed a store that is not valid: {0}"
    )]
    Store(memory_plane::push::InvalidTarget),
    /// A space's keys for its store.
    #[error("cannot read the keys in {file}: {error}")]
    Keys {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: memory_plane::push::KeysError,
    },
    /// A space's token.
    #[error("cannot read the token in {file}: {why}")]
    Token {
        /// The file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Returns the command that starts this program once more, with `control` as its control socket.
pub(crate) fn command(control: ControlSocket) -> Command {
    // Not the path of this program: another version may be installed there by now.
    let mut command = Command::new("/proc/self/exe");
    command
        .arg0("vicinity")
        // The process needs no variables, and none may change what it does.
        .env_clear()
        // Except this one: the C library would give each thread a heap of its own, and read files about the machine
        // when a heap grows or shrinks, which the sandbox does not allow.
        .env("MALLOC_ARENA_MAX", "1")
        .stdin(OwnedFd::from(control))
        .stdout(Stdio::null());
    command
}

/// Takes the control socket, which is standard input. Standard input and output are the log afterwards, so that the
/// process has no descriptor that it does not use.
pub(crate) fn take_control_socket() -> io::Result<ControlSocket> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    let control = ControlSocket::try_from(socket)?;
    rustix::stdio::dup2_stdin(rustix::stdio::stderr())?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok(control)
}

/// Sets the name of this process, ignores the signals of a service manager, and logs panics.
pub(crate) fn set_up(name: &str) -> io::Result<()> {
    // A service manager signals all processes of a service at once. This one ends when its supervisor sends the
    // order.
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::default())?;
    }
    // For `ps` and `top`; the kernel keeps 15 bytes.
    rustix::thread::set_name(&CString::new(name)?)?;
    std::panic::set_hook(Box::new(|panic| {
        tracing::error!("internal error, report it as a bug: {panic}");
    }));
    Ok(())
}

/// Logs what the sandbox could not take away from this process.
pub(crate) fn log_missing_stages(missing: impl IntoIterator<Item = sandbox::MissingStage>) {
    for stage in missing {
        tracing::warn!("the sandbox is incomplete: {stage}; see `vicinity doctor`");
    }
}
