//! Which VMs take connections: their agents hold a connection on a port that only root can bind.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::SockAddr;

use super::address::{AGENT_PORT, vsock};
use super::directory::Directory;

/// Time between two attempts, and the longest time until a thread sees that its peer is not wanted any more.
const PAUSE: Duration = Duration::from_secs(1);

/// All peers, each with a thread that waits for its agent.
#[derive(Debug)]
pub(super) struct Peers {
    all: BTreeMap<u32, Arc<Peer>>,
    /// Readable when a peer's state changed.
    changes: UnixStream,
    changed: Arc<UnixStream>,
}

#[derive(Debug, Default)]
struct Peer {
    is_up: AtomicBool,
    is_wanted: AtomicBool,
}

impl Peers {
    pub(super) fn new() -> io::Result<Self> {
        let (changes, changed) = UnixStream::pair()?;
        changes.set_nonblocking(true)?;
        changed.set_nonblocking(true)?;
        Ok(Self {
            all: BTreeMap::new(),
            changes,
            changed: Arc::new(changed),
        })
    }

    /// Watches the VMs of the directory that offer ports, and no others.
    pub(super) fn update(&mut self, directory: &Directory) {
        let others = directory.entries.iter();
        let others =
            others.filter(|entry| entry.cid != directory.own_cid && !entry.ports.is_empty());
        let wanted: BTreeSet<u32> = others.map(|entry| entry.cid).collect();
        self.all.retain(|cid, peer| {
            peer.is_wanted
                .store(wanted.contains(cid), Ordering::Relaxed);
            wanted.contains(cid)
        });
        for cid in wanted {
            if !self.all.contains_key(&cid) {
                self.watch(cid);
            }
        }
    }

    fn watch(&mut self, cid: u32) {
        let peer = Arc::new(Peer::default());
        peer.is_wanted.store(true, Ordering::Relaxed);
        let (mine, changed) = (Arc::clone(&peer), Arc::clone(&self.changed));
        let thread = thread::Builder::new().stack_size(128 << 10);
        // Without a thread the peer stays down, and the next update tries again.
        if thread.spawn(move || watch(cid, &mine, &changed)).is_ok() {
            self.all.insert(cid, peer);
        }
    }

    /// Returns the CIDs of the VMs that take connections.
    pub(super) fn up(&self) -> BTreeSet<u32> {
        let up =
            |(cid, peer): (&u32, &Arc<Peer>)| peer.is_up.load(Ordering::Relaxed).then_some(*cid);
        self.all.iter().filter_map(up).collect()
    }

    /// Waits until a peer's state changes, or for this time.
    pub(super) fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = Timespec::try_from(limit).unwrap_or_default();
        match poll(
            &mut [PollFd::new(&self.changes, PollFlags::IN)],
            Some(&limit),
        ) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut bytes = [0; 64];
        while (&self.changes)
            .read(&mut bytes)
            .is_ok_and(|count| count > 0)
        {}
        Ok(())
    }
}

fn watch(cid: u32, peer: &Peer, changed: &UnixStream) {
    let show = |is_up: bool| {
        peer.is_up.store(is_up, Ordering::Relaxed);
        // A full socket is readable anyway.
        drop((&*changed).write(&[0]));
    };
    while peer.is_wanted.load(Ordering::Relaxed) {
        // An error is a peer that is down, too.
        drop(stay_connected(cid, peer, &show));
        if peer.is_up.load(Ordering::Relaxed) {
            show(false);
        }
        thread::sleep(PAUSE);
    }
}

/// Returns when the peer's agent has ended, or does not answer.
fn stay_connected(cid: u32, peer: &Peer, show: &impl Fn(bool)) -> io::Result<()> {
    let mut socket = vsock()?;
    socket.set_read_timeout(Some(PAUSE))?;
    socket.connect(&SockAddr::vsock(cid, AGENT_PORT))?;
    let mut byte = [0];
    socket.read_exact(&mut byte)?;
    if byte != *b"1" {
        return Ok(());
    }
    show(true);
    while peer.is_wanted.load(Ordering::Relaxed) {
        match socket.read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            // The end, an error, or a peer that breaks the protocol.
            _ => break,
        }
    }
    Ok(())
}
