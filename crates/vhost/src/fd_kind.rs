//! Determines the kind of a file descriptor that a front-end sent.
//!
//! Operations on some descriptors can block for as long as the front-end likes. A FUSE server decides
//! when it answers a write, a poll or even an `fstat`; a socket can linger on close; polling an epoll
//! descriptor takes a kernel lock that its owner can hold without a limit. A worker that waits for such an
//! operation stops every port, in a sleep that no signal ends. So this module asks the kernel for the
//! kind of the file first, and calls no operation of the file itself.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fcntl_get_seals, openat, readlinkat_raw,
    statx,
};
use rustix::io::Errno;

/// The kernel's name for each eventfd (`eventfd_file_create` in `fs/eventfd.c`). The path of a file on
/// a file system begins with a slash, and no other anonymous file has this name.
const EVENTFD: &[u8] = b"anon_inode:[eventfd]";

/// `/proc/self/fd`, which stays open because a sandbox may hide `/proc` later.
static DESCRIPTORS: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();

/// Opens `/proc/self/fd` for [`is_event`]. A process that gives up the right to open files must call
/// this first.
///
/// # Errors
/// `/proc` is not mounted.
pub fn prepare() -> Result<(), Errno> {
    let opened = DESCRIPTORS.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, c"/proc/self/fd", flags, Mode::empty())
    });
    opened.as_ref().map(drop).map_err(|error| *error)
}

/// Returns whether the descriptor is an eventfd: neither a file on a file system, nor another anonymous
/// file (epoll, timerfd, signalfd, pidfd, io_uring, userfaultfd, KVM, VFIO), whose operations may block
/// or have side effects.
///
/// Writing a zero would tell eventfds from most other files, but is an operation of a VFIO device too.
/// Reading the file's name from `/proc` calls no operation of the file.
pub fn is_event(descriptor: impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    // syscalls: statx
    let anonymous = statx(&descriptor, c"", flags, StatxFlags::TYPE)
        .is_ok_and(|file| FileType::from_raw_mode(file.stx_mode.into()) == FileType::Unknown);
    anonymous && has_name(descriptor, EVENTFD)
}

fn has_name(descriptor: impl AsFd, name: &[u8]) -> bool {
    if prepare().is_err() {
        return false;
    }
    let Some(Ok(descriptors)) = DESCRIPTORS.get() else {
        return false;
    };
    let number = descriptor.as_fd().as_raw_fd().to_string();
    let mut buffer = [const { MaybeUninit::uninit() }; 64];
    // syscalls: readlinkat
    readlinkat_raw(descriptors, number, &mut buffer[..]).is_ok_and(|(found, _)| *found == *name)
}

/// Returns whether the descriptor is memory: a memfd, or a file on tmpfs or hugetlbfs. No other file
/// has seals.
pub(crate) fn is_memory(descriptor: impl AsFd) -> bool {
    // syscalls: fcntl
    fcntl_get_seals(descriptor).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn eventfds_memory_and_other_files_are_distinguished() {
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        assert!(is_memory(&memory) && !is_event(&memory));
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (socket, _other) = UnixStream::pair().unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let folder = File::open("/").unwrap();
        for other in [
            read.as_fd(),
            write.as_fd(),
            socket.as_fd(),
            file.as_fd(),
            folder.as_fd(),
        ] {
            assert!(!is_event(other) && !is_memory(other), "{other:?}");
        }
    }

    #[test]
    fn an_eventfd_is_recognised_when_it_is_full_or_blocking() {
        for flags in [
            EventfdFlags::CLOEXEC,
            EventfdFlags::NONBLOCK,
            EventfdFlags::SEMAPHORE,
        ] {
            let event = eventfd(0, flags).unwrap();
            assert!(is_event(&event) && !is_memory(&event));
            rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            assert!(is_event(&event));
        }
    }

    /// A file may have the name of an eventfd, but the kernel returns it with its path.
    #[test]
    fn a_file_named_like_an_eventfd_is_not_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("anon_inode:[eventfd]")).unwrap();
        let memory = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).unwrap();
        let both: [BorrowedFd<'_>; 2] = [file.as_fd(), memory.as_fd()];
        for other in both {
            assert!(!is_event(other) && !has_name(other, EVENTFD));
        }
    }
}
