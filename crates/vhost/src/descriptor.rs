//! What kind of descriptor a front-end has handed over.
//!
//! Whoever serves a file system (FUSE) answers what is asked of its files when it likes, be it a
//! write, a poll or a plain `fstat`; a socket may linger when it is closed. Whoever waits for that
//! makes every port wait. So only what the kernel itself knows is asked for here, and nothing else
//! is done with a descriptor of the wrong kind.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, StatxFlags, fcntl_get_seals, statx};

/// Whether it can carry events: one of the kernel's own, with no file system behind it.
pub(crate) fn is_event(descriptor: impl AsFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    // syscalls: statx
    statx(descriptor, c"", flags, StatxFlags::TYPE)
        .is_ok_and(|file| FileType::from_raw_mode(file.stx_mode.into()) == FileType::Unknown)
}

/// Whether it is memory: a memfd, or a file on tmpfs or hugetlbfs. No other has seals.
pub(crate) fn is_memory(descriptor: impl AsFd) -> bool {
    // syscalls: fcntl
    fcntl_get_seals(descriptor).is_ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    use rustix::event::{EventfdFlags, eventfd};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        assert!(is_event(&event) && !is_memory(&event));
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
}
