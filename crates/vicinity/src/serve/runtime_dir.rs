//! The files that the daemon creates on disk: its runtime folder, the networks' folders and its
//! sockets. Each value removes the file that it created when it is dropped, and nothing else.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{geteuid, umask};
use tokio::net::UnixListener;

use crate::unix_group::let_pass;

/// Permissions of folders: the owner, and readers of the owner's group.
const FOLDER_MODE: u32 = 0o750;

/// Permissions of a socket that QEMU connects to: the owner, and the owner's group.
pub(super) const SOCKET_MODE: u32 = 0o660;

/// Permissions of a socket for the owner alone.
const OWNER_MODE: u32 = 0o600;

/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 64;

/// Why a folder or a socket could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RuntimeDirError {
    /// A folder cannot be used.
    #[error(
        "cannot use the folder {}: {source}; run as root, or choose another folder with --runtime-dir", path.display()
    )]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// In this folder, other users can replace the daemon's sockets.
    #[error(
        "the folder {} belongs to another user, or all users may write to it, so another user could replace the \
            daemon's sockets; make the daemon's user its owner and remove the write permission of others (chown, \
            chmod o-w), or choose another folder with --runtime-dir", path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Another daemon uses the runtime folder.
    #[error(
        "another Vicinity daemon serves {}; stop it, or choose another folder with --runtime-dir",
        path.display()
    )]
    Served {
        /// The runtime folder.
        path: PathBuf,
    },
    /// Another process listens on a socket path.
    #[error(
        "the socket {} is in use by another process; stop that process, or give the port \
         another `socket`", path.display()
    )]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// A file that is not a socket has the path.
    #[error("{} exists and is not a socket; remove it, or choose another path", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// Another error of a socket.
    #[error("cannot listen on {}: {source}; check the folder's permissions", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A folder. When it is dropped, it removes the folder if it created the folder and the folder is
/// empty.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    made: bool,
}

impl Folder {
    pub(super) fn create(path: &Path) -> Result<Self, RuntimeDirError> {
        // Set the permissions explicitly, because those of a new folder depend on the umask.
        let give = || std::fs::set_permissions(path, Permissions::from_mode(FOLDER_MODE));
        let made = match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Ok(()) => give().is_ok(),
            Err(source) => match std::fs::metadata(path) {
                Ok(there) if there.is_dir() => {
                    check(path, &there)?;
                    false
                }
                _ => {
                    let path = path.to_owned();
                    return Err(RuntimeDirError::Folder { path, source });
                }
            },
        };
        Ok(Self {
            path: path.to_owned(),
            made,
        })
    }
}

/// Checks that no other user can replace the daemon's sockets in a folder.
fn check(path: &Path, folder: &Metadata) -> Result<(), RuntimeDirError> {
    let others_write = folder.mode() & 0o002 != 0;
    if !others_write && [0, geteuid().as_raw()].contains(&folder.uid()) {
        return Ok(());
    }
    Err(RuntimeDirError::Foreign {
        path: path.to_owned(),
    })
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.made {
            // If the folder is not empty, others use it now: leave it in place.
            drop(std::fs::remove_dir(&self.path));
        }
    }
}

/// The runtime folder, locked by this daemon.
#[derive(Debug)]
pub(super) struct RuntimeDir {
    _lock: File,
    _folder: Folder,
}

impl RuntimeDir {
    pub(super) fn claim(path: &Path) -> Result<Self, RuntimeDirError> {
        let folder = Folder::create(path)?;
        let lock = File::open(path).map_err(|source| RuntimeDirError::Folder {
            path: path.to_owned(),
            source,
        })?;
        // The lock is on the folder itself, so it leaves no file behind, and the kernel releases it
        // however this process ends.
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            RuntimeDirError::Served {
                path: path.to_owned(),
            }
        })?;
        Ok(Self {
            _lock: lock,
            _folder: folder,
        })
    }
}

/// Removes the socket at `path`, even if a process listens there. This is for sockets on which a process of a
/// previous daemon may still listen. If that process waits in the kernel, no program can end it. Removing the
/// socket is safe, because this daemon has locked the runtime folder.
pub(super) fn remove_socket(path: &Path) {
    let is_socket = |metadata: Metadata| metadata.file_type().is_socket();
    if std::fs::symlink_metadata(path).is_ok_and(is_socket) {
        drop(std::fs::remove_file(path));
    }
}

/// Listens on `path`. Replaces a socket on which no process listens any more.
pub(super) fn listen(
    path: &Path,
    mode: u32,
) -> Result<(UnixListener, SocketFile), RuntimeDirError> {
    remove_stale(path)?;
    let failed = |source: io::Error| RuntimeDirError::Socket {
        path: path.to_owned(),
        source,
    };
    let socket = bound(path, mode).map_err(failed)?;
    let file = SocketFile(path.to_owned());
    rustix::net::listen(&socket, BACKLOG).map_err(|error| failed(error.into()))?;
    let listener = UnixListener::from_std(socket.into()).map_err(failed)?;
    Ok((listener, file))
}

/// Listens on `path` for the owner, and for this group if there is one.
pub(super) fn listen_for_group(
    path: &Path,
    group: Option<u32>,
) -> Result<(UnixListener, SocketFile), RuntimeDirError> {
    let listening = listen(path, OWNER_MODE)?;
    if let Some(group) = group {
        // In this folder no other user can replace the socket, so the path is still the socket's.
        let folder = path.parent().unwrap_or(path);
        let given = std::os::unix::fs::lchown(path, None, Some(group))
            .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE)))
            .and_then(|()| let_pass(folder));
        given.map_err(|source| RuntimeDirError::Socket {
            path: path.to_owned(),
            source,
        })?;
    }
    Ok(listening)
}

/// Creates a socket at `path` with these permissions from the beginning. Changing the permissions afterwards
/// could change another file that has replaced the socket at `path`.
fn bound(path: &Path, mode: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = SocketAddrUnix::new(path)?;
    // No other thread of this process creates files, so changing the umask affects only this
    // socket.
    let before = umask(Mode::from_raw_mode(!mode & 0o777));
    let bound = rustix::net::bind(&socket, &address);
    umask(before);
    bound?;
    Ok(socket)
}

/// A socket's file, which is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

fn remove_stale(path: &Path) -> Result<(), RuntimeDirError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    let path = path.to_owned();
    if !metadata.file_type().is_socket() {
        return Err(RuntimeDirError::NotASocket { path });
    }
    match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(socket = %path.display(), "replaced a stale socket, on which no process listens");
            std::fs::remove_file(&path).map_err(|source| RuntimeDirError::Socket { path, source })
        }
        // The connection succeeded, or failed for another reason, such as permissions: a process
        // listens there.
        _ => Err(RuntimeDirError::Busy { path }),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[tokio::test]
    async fn a_socket_has_its_permissions_whatever_the_umask_is_and_whatever_its_path_becomes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        for mode in [0o660, 0o600, 0o666] {
            let (_socket, _file) = listen(&path, mode).unwrap();
            let there = std::fs::symlink_metadata(&path).unwrap();
            assert!(there.file_type().is_socket());
            assert_eq!(there.mode() & 0o777, mode);
        }
        // A symbolic link in its place is not followed.
        let other = folder.path().join("other");
        std::fs::write(&other, "").unwrap();
        std::fs::set_permissions(&other, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        listen(&path, 0o666).unwrap_err();
        assert_eq!(std::fs::metadata(&other).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_folder_in_which_others_can_put_sockets_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        Folder::create(folder.path()).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let error = Folder::create(folder.path()).unwrap_err().to_string();
        assert!(error.contains("all users may write"), "{error}");
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        Folder::create(folder.path()).unwrap();
        // Only root can change the owner of a folder.
        if geteuid().is_root() {
            chown(folder.path(), Some(4711), None).unwrap();
            Folder::create(folder.path()).unwrap_err();
        }
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(
            Folder::create(&file),
            Err(RuntimeDirError::Folder { .. })
        ));
    }
}
