//! Where the supervisor, its processes, the commands and the VMs' QEMUs find each other: the files and folders
//! in the runtime folder.

use std::path::{Path, PathBuf};

use message::remote::{BOARD, INTERFACE_SOCKET};

/// Runtime folder when none is configured.
pub(crate) const RUNTIME_DIR: &str = "/run/vicinity";

/// Name of the control socket in the runtime folder.
pub(crate) const CONTROL_SOCKET: &str = "control.sock";

/// Name of the read-only socket in the runtime folder: for the page, by users that may change nothing.
pub(crate) const VIEW_SOCKET: &str = "view.sock";

/// The folder of the sockets of the message plane's members.
pub(crate) const MESSAGE_FOLDER: &str = "message-plane";

/// The folder of the trust groups' sockets and of their VMs' monitors.
pub(crate) const DIRECT_FOLDER: &str = "direct";

/// The folder of the spaces' sockets.
pub(crate) const SPACE_FOLDER: &str = "space";

/// The folder of the sockets plane's sockets.
pub(crate) const VSOCK_FOLDER: &str = "vsock";

/// The sockets in the runtime folder: no network has the name of one of them.
pub(crate) const SOCKETS: [&str; 3] = [CONTROL_SOCKET, VIEW_SOCKET, INTERFACE_SOCKET];

/// The folders that are not a network's; each network has a folder of its own name beside them.
pub(crate) const FOLDERS: [&str; 5] = [
    BOARD,
    MESSAGE_FOLDER,
    DIRECT_FOLDER,
    SPACE_FOLDER,
    VSOCK_FOLDER,
];

/// Returns the socket of a member of the message plane.
pub(crate) fn member_socket(runtime_dir: &Path, member: &str) -> PathBuf {
    runtime_dir
        .join(MESSAGE_FOLDER)
        .join(format!("{member}.sock"))
}

/// Returns the folder of the direct channel.
pub(crate) fn direct_folder(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join(DIRECT_FOLDER)
}

/// Returns the socket by which a VM's QEMU connects to the process of the VM's space.
pub(crate) fn space_socket(runtime_dir: &Path, vm: &str) -> PathBuf {
    runtime_dir.join(SPACE_FOLDER).join(format!("{vm}.sock"))
}

/// Returns the socket by which a VM's QEMU connects to the sockets plane.
pub(crate) fn vsock_device(runtime_dir: &Path, vm: &str) -> PathBuf {
    runtime_dir.join(VSOCK_FOLDER).join(format!("{vm}.sock"))
}

/// Returns the socket on which a host program listens for a VM's connections to this port of the host.
pub(crate) fn vsock_host_port(runtime_dir: &Path, vm: &str, port: u32) -> PathBuf {
    runtime_dir
        .join(VSOCK_FOLDER)
        .join(format!("{vm}.vsock_{port}"))
}

/// Returns the socket by which host programs connect to a VM's ports.
pub(crate) fn vsock_host(runtime_dir: &Path, vm: &str) -> PathBuf {
    runtime_dir.join(VSOCK_FOLDER).join(format!("{vm}.vsock"))
}

/// Returns the socket of the QEMU monitor by which the supervisor plugs the VM's space in again.
pub(crate) fn space_monitor(runtime_dir: &Path, vm: &str) -> PathBuf {
    runtime_dir.join(SPACE_FOLDER).join(format!("{vm}.qmp"))
}
