//! What kind of descriptor a front-end has handed over.
//!
//! Whoever serves a file system (FUSE) answers what is asked of its files when it likes, be it a
//! write, a poll or a plain `fstat`; a socket may linger when it is closed; polling an epoll
//! descriptor takes a lock of the kernel that its owner can hold for ever. Whoever waits for that makes
//! every port wait, in a sleep that no signal ends. So no operation of the descriptor's own file is
//! called before the kernel has said what it is.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatxFlags, fcntl_get_seals, openat, readlinkat_raw,
    statx,
};
use rustix::io::Errno;

/// What the kernel calls each eventfd: `eventfd_file_create` in its `fs/eventfd.c`. Files that have a
/// path begin with a slash, and no other file of the kernel's own has this name.
const EVENTFD: &[u8] = b"anon_inode:[eventfd]";

/// This process's descriptors by their numbers. A sandbox may hide `/proc`, so this outlives it.
static DESCRIPTORS: OnceLock<Result<OwnedFd, Errno>> = OnceLock::new();

/// Open what [`is_event`] asks. A process that gives up the right to open files does this before.
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

/// Whether it is an eventfd and nothing else: neither a file of any file system, nor another of the
/// kernel's own (epoll, timerfd, signalfd, pidfd, io_uring, userfaultfd, KVM, VFIO), whose operations may
/// wait or do something.
///
/// The write of a zero, which tells eventfds from most others, is an operation of a VFIO device, too: so
/// the kernel is asked for the name, which calls nothing of the file.
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

/// Whether it is memory: a memfd, or a file on tmpfs or hugetlbfs. No other has seals.
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
    fn kinds_are_told_apart() {
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
    fn an_eventfd_is_one_also_when_it_is_full_or_blocks() {
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

    /// A file may have the name, but not alone: its path is told with it.
    #[test]
    fn a_file_of_that_name_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("anon_inode:[eventfd]")).unwrap();
        let memory = memfd_create("anon_inode:[eventfd]", MemfdFlags::CLOEXEC).unwrap();
        let both: [BorrowedFd<'_>; 2] = [file.as_fd(), memory.as_fd()];
        for other in both {
            assert!(!is_event(other) && !has_name(other, EVENTFD));
        }
    }
}
