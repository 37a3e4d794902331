//! Gives back what front-ends handed over, in threads that nobody waits for.
//!
//! To close a descriptor can take as long as the one that handed it over likes: a file system of its own
//! (FUSE) need not answer, a TCP socket lingers, and to unmap the memory of a large VM takes seconds. So no
//! thread that serves does that: it hands both over here, which never waits. One thread closes, another one
//! unmaps: one that hangs in a close keeps no VM's memory.
//!
//! Without [`start`], as in tests of a part, everything is given back where it is dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::raw::Pages;

/// Descriptors that wait to be closed, at most. When the thread that closes hangs and as many wait, others
/// stay open as long as the process.
const MAX_WAITING_CLOSES: usize = 1024;

static CLOSER: OnceLock<SyncSender<OwnedFd>> = OnceLock::new();

/// Its queue is bounded by the number of mappings that a process may have: each keeps its place until it is
/// unmapped.
static UNMAPPER: OnceLock<Sender<Pages>> = OnceLock::new();

/// Descriptors that were left open.
static LEFT_OPEN: AtomicU64 = AtomicU64::new(0);

/// Start the threads, once for the process. Each has called `prepare` when this returns.
///
/// # Errors
/// The kernel has no thread for us.
pub fn start(prepare: impl Fn() + Copy + Send + 'static) -> io::Result<()> {
    if CLOSER.get().is_some() {
        return Ok(());
    }
    let (closer, closes) = sync_channel(MAX_WAITING_CLOSES);
    let (unmapper, unmaps) = channel();
    let (ready, prepared) = channel();
    run("reclaim-close", prepare, ready.clone(), closes)?;
    run("reclaim-unmap", prepare, ready, unmaps)?;
    prepared.into_iter().for_each(drop);
    // Who comes second is not heard, and its threads end.
    let _second = (CLOSER.set(closer), UNMAPPER.set(unmapper));
    Ok(())
}

fn run<T: Send + 'static>(
    name: &str,
    prepare: impl Fn() + Send + 'static,
    ready: Sender<()>,
    queue: Receiver<T>,
) -> io::Result<()> {
    let work = move || {
        prepare();
        drop(ready);
        queue.into_iter().for_each(drop);
    };
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    Ok(())
}

/// Close a descriptor that somebody else may keep from being closed. Does not wait for that.
pub fn close(fd: OwnedFd) {
    let Some(closer) = CLOSER.get() else {
        return drop(fd);
    };
    if let Err(full) = closer.try_send(fd) {
        if LEFT_OPEN.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "descriptors that front-ends handed over cannot be closed: {MAX_WAITING_CLOSES} wait, and others stay \
                 open; a front-end has handed over a file whose close does not end"
            );
        }
        let (std::sync::mpsc::TrySendError::Full(fd)
        | std::sync::mpsc::TrySendError::Disconnected(fd)) = full;
        std::mem::forget(fd);
    }
}

/// Unmap memory. Does not wait for that.
pub(crate) fn unmap(pages: Pages) {
    match UNMAPPER.get() {
        // The thread lives as long as the process.
        Some(unmapper) => drop(unmapper.send(pages)),
        None => drop(pages),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Write};
    use std::mem::MaybeUninit;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::net::sockopt::set_socket_linger;
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    use super::*;
    use crate::channel::Channel;
    use crate::raw::{Foreign, Mapping};

    /// A socket whose close waits: what was sent is not taken, and it lingers.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        sender.set_nonblocking(true).unwrap();
        while sender.write(&[0; 1 << 16]).is_ok() {}
        sender.set_nonblocking(false).unwrap();
        set_socket_linger(&sender, Some(Duration::from_secs(60))).unwrap();
        (sender.into(), receiver)
    }

    #[test]
    fn nobody_waits_for_a_close_and_memory_is_unmapped_all_the_same() {
        start(|| {}).unwrap();
        start(|| {}).unwrap();
        let (fd, receiver) = lingering();
        let started = Instant::now();
        drop(Foreign::from(fd));
        assert!(started.elapsed() < Duration::from_millis(100), "it waited");
        // What nobody received is closed with the socket that it waits in.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (fd, other_receiver) = lingering();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = [fd.as_fd()];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        let bytes = [IoSlice::new(&[0])];
        sendmsg(&theirs, &bytes, &mut ancillary, SendFlags::empty()).unwrap();
        drop(fd);
        let closing = Instant::now();
        drop(Channel::new(ours.into()).unwrap());
        assert!(closing.elapsed() < Duration::from_millis(100), "it waited");
        // Memory does not wait behind it.
        let memory = memfd_create("reclaimed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let memory = memory.unwrap();
        rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
        drop(Mapping::new(memory.as_fd(), 0, 1 << 20).unwrap());
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        while maps().contains("memfd:reclaimed") {
            assert!(started.elapsed() < Duration::from_secs(10), "it is mapped");
            thread::yield_now();
        }
        // As many as there may be wait behind it, and no more.
        for _ in 0..MAX_WAITING_CLOSES + 2 {
            let (one, _other) = rustix::pipe::pipe().unwrap();
            close(one);
        }
        assert!(LEFT_OPEN.load(Ordering::Relaxed) >= 1);
        assert!(started.elapsed() < Duration::from_secs(30), "nobody waited");
        drop((receiver, other_receiver));
    }
}
