//! Closes front-ends' descriptors and unmaps their memory in background threads.
//!
//! Closing a descriptor can take as long as the front-end that sent it likes: a FUSE server need not
//! answer, and a TCP socket lingers. Unmapping the memory of a large VM takes seconds. So the threads that
//! serve ports do neither: they queue descriptors and mappings for the threads here, which never blocks.
//! One thread closes and another one unmaps, so a close that hangs does not keep a VM's memory mapped.
//!
//! Without [`start`], for example in unit tests, descriptors are closed and memory is unmapped where they
//! are dropped.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::raw::Pages;

/// Most descriptors that wait to be closed. When the closing thread hangs and this many descriptors wait,
/// further descriptors stay open until the process ends.
const MAX_CLOSES: usize = 1024;

static CLOSE_QUEUE: OnceLock<SyncSender<OwnedFd>> = OnceLock::new();

/// The queue of the unmapping thread. `MAX_MAPPINGS` bounds it: each mapping keeps its registration until
/// it is unmapped.
static UNMAPPER: OnceLock<Sender<Pages>> = OnceLock::new();

/// Descriptors that stay open because the queue was full.
static LEFT_OPEN: AtomicU64 = AtomicU64::new(0);

/// Starts the threads, once per process. Each thread has called `prepare` when this returns.
///
/// # Errors
/// The kernel refuses to create a thread.
pub fn start(prepare: impl Fn() + Copy + Send + 'static) -> io::Result<()> {
    if CLOSE_QUEUE.get().is_some() {
        return Ok(());
    }
    let (closer, closes) = sync_channel(MAX_CLOSES);
    let (unmapper, unmaps) = channel();
    let (ready, prepared) = channel();
    run("reclaim-close", prepare, ready.clone(), closes)?;
    run("reclaim-unmap", prepare, ready, unmaps)?;
    prepared.into_iter().for_each(drop);
    // If two callers race, the second one's queues are dropped here, and its threads end.
    let _second = (CLOSE_QUEUE.set(closer), UNMAPPER.set(unmapper));
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

/// Queues a descriptor to be closed. Does not wait for the close, which another process may delay.
pub fn close(fd: OwnedFd) {
    let Some(closer) = CLOSE_QUEUE.get() else {
        return drop(fd);
    };
    if let Err(full) = closer.try_send(fd) {
        if LEFT_OPEN.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::error!(
                "cannot close descriptors of front-ends: {MAX_CLOSES} wait for their close, and others stay \
                    open. A front-end has sent a file whose close does not return; find the hanging file system \
                    or device"
            );
        }
        let (std::sync::mpsc::TrySendError::Full(fd)
        | std::sync::mpsc::TrySendError::Disconnected(fd)) = full;
        std::mem::forget(fd);
    }
}

/// Queues memory to be unmapped. Does not wait for the unmapping.
pub(crate) fn unmap(pages: Pages) {
    match UNMAPPER.get() {
        // The thread runs until the process ends, so the send cannot fail.
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
    use crate::raw::{ForeignFd, Mapping};

    /// Returns a socket whose close blocks: it lingers, and its peer does not read what was sent.
    fn socket_with_blocking_close() -> (OwnedFd, TcpStream) {
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
    fn a_close_that_blocks_delays_neither_the_caller_nor_the_unmapping_of_memory() {
        start(|| {}).unwrap();
        start(|| {}).unwrap();
        let (fd, receiver) = socket_with_blocking_close();
        let started = Instant::now();
        drop(ForeignFd::from(fd));
        assert!(started.elapsed() < Duration::from_millis(100), "it waited");
        // A descriptor that was sent but not received is closed together with its socket.
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (fd, other_receiver) = socket_with_blocking_close();
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
        // Unmapping does not wait for the close.
        let memory = memfd_create("reclaimed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING);
        let memory = memory.unwrap();
        rustix::fs::ftruncate(&memory, 1 << 20).unwrap();
        drop(Mapping::new(memory.as_fd(), 0, 1 << 20).unwrap());
        let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
        while maps().contains("memfd:reclaimed") {
            assert!(started.elapsed() < Duration::from_secs(10), "it is mapped");
            thread::yield_now();
        }
        // The queue behind the blocked close is bounded.
        for _ in 0..MAX_CLOSES + 2 {
            let (one, _other) = rustix::pipe::pipe().unwrap();
            close(one);
        }
        assert!(LEFT_OPEN.load(Ordering::Relaxed) >= 1);
        assert!(started.elapsed() < Duration::from_secs(30), "nobody waited");
        drop((receiver, other_receiver));
    }
}
