//! Takes AF_VSOCK connections for the servers of this VM.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddrV4;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::Socket;

use super::address::tcp_of;
use super::claim::{Claims, Pair};
use super::directory::Directory;
use super::forward::forward;
use super::listeners::Listeners;
use super::peers::Peers;
use super::tcp_connect::connect_as;
use crate::error::{AgentError, io};

/// What the client waits for: guest/sockets/layout.h.
const ACCEPTED: u8 = 1;

/// Ports below this one are for privileged programs (`ip_unprivileged_port_start`), and those of AF_VSOCK are not.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Most connections of one VM that no server has taken over. Further ones go by TCP.
const MAX_OF_VM: usize = 256;

/// Longest wait for a client that takes no data.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server may leave a connection in its queue before the agent forwards the data instead.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

/// The server's side of the agent.
#[derive(Debug)]
pub(super) struct Server {
    claims: Arc<Claims>,
    slots: Arc<Slots>,
}

/// Counts connections for each CID.
#[derive(Debug, Default)]
struct Slots(Mutex<HashMap<u32, usize>>);

/// A counted connection, until this is dropped.
#[derive(Debug)]
struct Slot {
    cid: u32,
    slots: Arc<Slots>,
}

impl Slots {
    fn take(self: &Arc<Self>, cid: u32) -> Option<Slot> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.entry(cid).or_default();
        if *count >= MAX_OF_VM {
            return None;
        }
        *count += 1;
        Some(Slot {
            cid,
            slots: Arc::clone(self),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.cid) {
            *count = count.saturating_sub(1);
        }
        all.retain(|_, count| *count > 0);
    }
}

impl Server {
    pub(super) fn new(claims: Arc<Claims>) -> Self {
        Self {
            claims,
            slots: Arc::default(),
        }
    }

    /// Takes connections until a peer's state changes, or for this time.
    pub(super) fn serve(
        &self,
        listeners: &mut Listeners,
        peers: &Peers,
        directory: &Directory,
        limit: Duration,
    ) -> Result<(), AgentError> {
        let end = Instant::now() + limit;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            if self.poll_once(listeners, peers, directory, rest)? || rest.is_zero() {
                return Ok(());
            }
        }
    }

    /// Waits once, and takes the connections that are there. Returns whether a peer's state changed.
    fn poll_once(
        &self,
        listeners: &mut Listeners,
        peers: &Peers,
        directory: &Directory,
        rest: Duration,
    ) -> Result<bool, AgentError> {
        let ports: Vec<u32> = listeners.all.keys().copied().collect();
        let mut descriptors = vec![PollFd::new(peers, PollFlags::IN)];
        let sockets = listeners.all.values().chain(&listeners.agent);
        descriptors
            .extend(sockets.map(|socket| PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)));
        let limit = Timespec::try_from(rest).unwrap_or_default();
        match poll(&mut descriptors, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            result => io(result, || "wait".to_owned())?,
        };
        let mut ready = descriptors.iter().map(|one| !one.revents().is_empty());
        let has_changed = ready.next() == Some(true);
        let ready: Vec<bool> = ready.collect();
        peers.clear_changes();
        for (port, _) in ports.iter().zip(&ready).filter(|(_, is_ready)| **is_ready) {
            if let Some(listener) = listeners.all.get(port) {
                self.accept(listener, *port, directory);
            }
        }
        if let Some(Ok((peer, from))) = listeners.agent.as_ref().map(Socket::accept) {
            if let Some((cid, _)) = from.as_vsock_address() {
                listeners.notify(cid, peer);
            }
        }
        Ok(has_changed)
    }

    /// Takes a connection. A connection that is dropped goes by TCP.
    fn accept(&self, listener: &Socket, port: u32, directory: &Directory) {
        let Ok((vsock, from)) = listener.accept() else {
            return;
        };
        let Some((cid, from)) = from.as_vsock_address() else {
            return;
        };
        let Some(pair) = pair(directory, (cid, from), port) else {
            return;
        };
        let Some(slot) = self.slots.take(cid) else {
            return;
        };
        let claims = Arc::clone(&self.claims);
        let thread = thread::Builder::new().stack_size(128 << 10);
        let started = thread.spawn(move || {
            let _slot = slot;
            // An error ends this connection only.
            drop(connect(vsock, pair, &claims));
        });
        // Without a thread the connection is dropped.
        drop(started);
    }
}

/// Returns the addresses of TCP that an AF_VSOCK connection stands for, if the host's directory has both.
fn pair(directory: &Directory, (cid, from): (u32, u32), to: u32) -> Option<Pair> {
    let (from_index, from_port) = tcp_of(from)?;
    let (to_index, to_port) = tcp_of(to)?;
    let client = directory.entry(cid, from_index)?;
    let server = directory.entry(directory.own_cid, to_index)?;
    let is_good = cid != directory.own_cid
        && client.network == server.network
        && from_port >= FIRST_UNPRIVILEGED;
    is_good.then_some((
        SocketAddrV4::new(client.address, from_port),
        SocketAddrV4::new(server.address, to_port),
    ))
}

fn connect(vsock: Socket, pair: Pair, claims: &Arc<Claims>) -> io::Result<()> {
    let pending = claims.expect(pair).ok_or(io::ErrorKind::AddrInUse)?;
    let tcp = connect_as(pair.0, pair.1)?;
    vsock.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    (&vsock).write_all(&[ACCEPTED])?;
    vsock.set_write_timeout(None)?;
    if pending.hand_over(&vsock, CLAIM_TIMEOUT) {
        // The server has closed its end; the kernel need not remember the connection.
        return tcp.set_linger(Some(Duration::ZERO));
    }
    drop(pending);
    forward(vsock, tcp)
}

#[cfg(test)]
mod tests {
    use super::super::address::port_of;
    use super::*;

    const TEXT: &str = "vicinity-sockets 1\nself 4\naddress 3 0 1 10.0.0.3\naddress 3 1 2 10.1.0.3\n\
                        address 4 0 1 10.0.0.4 22\nend\n";

    #[test]
    fn connections_stand_for_addresses_that_the_host_tells() {
        let directory = Directory::read(TEXT).unwrap();
        let of = |cid, from, to| pair(&directory, (cid, from), to);
        let found = of(3, port_of(0, 40000), port_of(0, 22)).unwrap();
        assert_eq!(found.0, "10.0.0.3:40000".parse().unwrap());
        assert_eq!(found.1, "10.0.0.4:22".parse().unwrap());
        for (cid, from, to, why) in [
            (3, port_of(0, 1023), port_of(0, 22), "a privileged port"),
            (3, port_of(1, 40000), port_of(0, 22), "another network"),
            (3, port_of(2, 40000), port_of(0, 22), "no such address"),
            (5, port_of(0, 40000), port_of(0, 22), "no such VM"),
            (4, port_of(0, 40000), port_of(0, 22), "this VM"),
            (3, 40000, port_of(0, 22), "a port of AF_VSOCK itself"),
            (
                3,
                port_of(0, 40000),
                port_of(1, 22),
                "not this VM's address",
            ),
        ] {
            assert_eq!(of(cid, from, to), None, "{why}");
        }
    }

    #[test]
    fn each_vm_has_a_bounded_number_of_connections() {
        let slots = Arc::new(Slots::default());
        let all: Vec<_> = (0..MAX_OF_VM).map(|_| slots.take(3).unwrap()).collect();
        assert!(slots.take(3).is_none());
        assert!(slots.take(5).is_some());
        drop(all);
        assert!(slots.take(3).is_some());
    }
}
