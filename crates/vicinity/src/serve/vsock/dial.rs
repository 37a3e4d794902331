//! Connects to the host program that listens for a guest's port of the host.
//!
//! The folder belongs to the daemon's user, so no other user can place a socket there; that user's programs may have
//! made links by mistake. So a path is followed only to a socket that is in the folder itself: not through a symbolic
//! link, and not if the socket has another name elsewhere (a hard link), such as the control socket of a container
//! manager.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects to the socket at `path`. Never waits: a program whose queue of connections is full is refused.
///
/// # Errors
/// There is no such socket, or no program listens on it.
pub(super) fn dial(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let status = fstat(file.as_fd())?;
    let is_socket = FileType::from_raw_mode(status.st_mode) == FileType::Socket;
    if !is_socket || status.st_nlink != 1 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a socket, or a link to one",
        ));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // By the descriptor, so that it is the file that was checked.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    connect(&socket, &address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_socket_of_the_folder_itself_is_connected_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let listener = UnixListener::bind(path("vm_1")).unwrap();
        dial(&path("vm_1")).unwrap();
        listener.accept().unwrap();
        std::os::unix::fs::symlink(path("vm_1"), path("vm_2")).unwrap();
        dial(&path("vm_2")).unwrap_err();
        std::fs::write(path("vm_3"), "").unwrap();
        dial(&path("vm_3")).unwrap_err();
        dial(&path("vm_4")).unwrap_err();
        std::fs::hard_link(path("vm_1"), path("vm_5")).unwrap();
        dial(&path("vm_5")).unwrap_err();
        std::fs::remove_file(path("vm_5")).unwrap();
        dial(&path("vm_1")).unwrap();
        drop(listener);
        dial(&path("vm_1")).unwrap_err();
    }
}
