//! Hands AF_VSOCK connections to servers that use the library: guest/sockets/claim.c.
//!
//! A server shows the TCP connection that it accepted, and gets the AF_VSOCK connection that it stands for. Only a
//! process with the accepted connection can claim it. The agent forwards the data if no claim comes, or if the server
//! does not say that it has the connection.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use socket2::{SockAddr, Socket};

/// The socket of the claims.
const PATH: &str = "/run/vicinity-agent/claim.sock";

/// Messages: guest/sockets/layout.h.
const LISTENING: u8 = b'L';
const CLAIM: u8 = b'C';
const TAKE: u8 = b'V';
const TAKEN: u8 = b'A';

/// Longest wait for the message of a program that connected.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(500);

/// Programs that are connected and have sent nothing yet.
const MAX_SILENT: usize = 64;

/// Client and server of a TCP connection.
pub(super) type Pair = (SocketAddrV4, SocketAddrV4);

/// The connections that can be claimed, and the ports whose servers claim.
#[derive(Debug, Default)]
pub(super) struct Claims {
    pending: Mutex<HashMap<Pair, SyncSender<UnixStream>>>,
    claiming: Mutex<HashSet<u16>>,
    silent: AtomicUsize,
}

/// A connection that can be claimed, until this is dropped.
#[derive(Debug)]
pub(super) struct Pending {
    pair: Pair,
    claims: Arc<Claims>,
    receiver: Receiver<UnixStream>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one call, so a thread that panicked left nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Claims {
    /// Lets a connection be claimed from now on. Returns `None` if there is one between the same addresses.
    pub(super) fn expect(self: &Arc<Self>, pair: Pair) -> Option<Pending> {
        // One claim is enough: the program that sends more of them loses the others.
        let (sender, receiver) = mpsc::sync_channel(1);
        let mut pending = lock(&self.pending);
        if pending.contains_key(&pair) {
            return None;
        }
        pending.insert(pair, sender);
        Some(Pending {
            pair,
            claims: Arc::clone(self),
            receiver,
        })
    }

    fn handle(&self, program: UnixStream) {
        let Ok((what, socket)) = receive(&program) else {
            return;
        };
        match what {
            LISTENING => {
                if let (Ok(true), Some(address)) =
                    (socket.is_listener(), address(socket.local_addr()))
                {
                    lock(&self.claiming).insert(address.port());
                }
            }
            CLAIM => {
                let pair = (address(socket.peer_addr()), address(socket.local_addr()));
                let (Some(client), Some(server)) = pair else {
                    return;
                };
                if let Some(pending) = lock(&self.pending).get(&(client, server)) {
                    // The connection may be forwarded since now; then the program sees that this socket closes.
                    drop(pending.try_send(program));
                }
            }
            _ => {}
        }
    }
}

impl Pending {
    /// Waits until the server claims its connection, if servers of its port do so, and hands it over. Returns whether
    /// the server has it.
    pub(super) fn hand_over(&self, vsock: &Socket, timeout: Duration) -> bool {
        let port = self.pair.1.port();
        let is_claiming = lock(&self.claims.claiming).contains(&port);
        let timeout = if is_claiming { timeout } else { Duration::ZERO };
        let Ok(program) = self.receiver.recv_timeout(timeout) else {
            // Another program may have the port now.
            lock(&self.claims.claiming).remove(&port);
            return false;
        };
        give(&program, vsock).is_ok_and(|said| said == TAKEN)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        lock(&self.claims.pending).remove(&self.pair);
    }
}

/// Sends the connection, and returns the answer. Only the server itself can delay it.
fn give(program: &UnixStream, vsock: &Socket) -> io::Result<u8> {
    pass(program, TAKE, vsock)?;
    program.set_read_timeout(None)?;
    let mut said = [0];
    (&mut &*program).read_exact(&mut said)?;
    Ok(said.first().copied().unwrap_or(0))
}

/// Sends a message and a descriptor.
fn pass(program: &UnixStream, what: u8, socket: impl AsFd) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [socket.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let byte = [what];
    let parts = [IoSlice::new(&byte)];
    sendmsg(program, &parts, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives a message and its socket.
fn receive(program: &UnixStream) -> io::Result<(u8, Socket)> {
    program.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(
        program,
        &mut [IoSliceMut::new(&mut byte)],
        &mut ancillary,
        flags,
    )?;
    let descriptor = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let descriptor: OwnedFd = descriptor.ok_or(io::ErrorKind::InvalidData)?;
    Ok((byte.first().copied().unwrap_or(0), descriptor.into()))
}

/// Returns an IPv4 address, also of an IPv6 socket.
fn address(of: io::Result<SockAddr>) -> Option<SocketAddrV4> {
    match of.ok()?.as_socket()? {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(address) => {
            let port = address.port();
            match address.ip().to_canonical() {
                IpAddr::V4(ip) => Some(SocketAddrV4::new(ip, port)),
                // A listener of any address.
                IpAddr::V6(ip) if ip.is_unspecified() => {
                    Some(SocketAddrV4::new([0; 4].into(), port))
                }
                IpAddr::V6(_) => None,
            }
        }
    }
}

/// Listens for programs, in a thread of its own.
pub(super) fn listen(claims: Arc<Claims>) -> io::Result<()> {
    // An agent that was killed leaves the file.
    drop(fs::remove_file(PATH));
    let listener = UnixListener::bind(PATH)?;
    fs::set_permissions(PATH, Permissions::from_mode(0o666))?;
    thread::Builder::new()
        .stack_size(128 << 10)
        .spawn(move || serve(&listener, &claims))?;
    Ok(())
}

fn serve(listener: &UnixListener, claims: &Arc<Claims>) {
    loop {
        match listener.accept() {
            Ok((program, _)) => start(program, claims),
            // Without descriptors, the next try must not come at once.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Handles a program in a thread of its own, so that a silent one delays no other one.
fn start(program: UnixStream, claims: &Arc<Claims>) {
    let mine = Arc::clone(claims);
    if claims.silent.fetch_add(1, Ordering::Relaxed) < MAX_SILENT {
        let handle = move || {
            mine.handle(program);
            mine.silent.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = thread::Builder::new().stack_size(128 << 10);
        if thread.spawn(handle).is_ok() {
            return;
        }
    }
    claims.silent.fetch_sub(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    struct Rig {
        claims: Arc<Claims>,
        accepted: TcpStream,
        listener: TcpListener,
        pair: Pair,
        _client: TcpStream,
    }

    fn rig() -> Rig {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let v4 = |address| match address {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => panic!(),
        };
        let pair = (
            v4(client.local_addr().unwrap()),
            v4(client.peer_addr().unwrap()),
        );
        Rig {
            claims: Arc::default(),
            accepted,
            listener,
            pair,
            _client: client,
        }
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_server_that_announced_itself_takes_its_connection() {
        let rig = rig();
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, LISTENING, &rig.listener).unwrap();
        rig.claims.handle(mine);
        let pending = rig.claims.expect(rig.pair).unwrap();
        assert!(rig.claims.expect(rig.pair).is_none());
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, CLAIM, &rig.accepted).unwrap();
        rig.claims.handle(mine);
        let (again, mine) = UnixStream::pair().unwrap();
        pass(&again, CLAIM, &rig.accepted).unwrap();
        rig.claims.handle(mine);
        again.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!((&again).read(&mut [0]).unwrap(), 0, "a claim is kept");
        let (vsock, mut other) = UnixStream::pair().unwrap();
        let answer = thread::spawn(move || {
            let (what, socket) = receive(&program).unwrap();
            assert_eq!(what, TAKE);
            (&socket).write_all(b"mine").unwrap();
            (&program).write_all(&[TAKEN]).unwrap();
        });
        assert!(pending.hand_over(&Socket::from(OwnedFd::from(vsock)), LONG));
        answer.join().unwrap();
        let mut got = [0; 4];
        other.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"mine");
    }

    #[test]
    fn a_server_that_fails_to_take_it_leaves_it_to_the_agent() {
        let rig = rig();
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, LISTENING, &rig.listener).unwrap();
        rig.claims.handle(mine);
        let pending = rig.claims.expect(rig.pair).unwrap();
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, CLAIM, &rig.accepted).unwrap();
        rig.claims.handle(mine);
        // It has no descriptor left.
        drop(program);
        let (vsock, _other) = UnixStream::pair().unwrap();
        assert!(!pending.hand_over(&Socket::from(OwnedFd::from(vsock)), LONG));
    }

    #[test]
    fn servers_that_never_claimed_are_not_waited_for_and_late_claims_get_nothing() {
        let rig = rig();
        let pending = rig.claims.expect(rig.pair).unwrap();
        let (vsock, _other) = UnixStream::pair().unwrap();
        assert!(!pending.hand_over(&Socket::from(OwnedFd::from(vsock)), LONG));
        drop(pending);
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, CLAIM, &rig.accepted).unwrap();
        rig.claims.handle(mine);
        assert_eq!((&program).read(&mut [0]).unwrap(), 0);
        // A socket that does not listen announces nothing.
        let (program, mine) = UnixStream::pair().unwrap();
        pass(&program, LISTENING, &rig.accepted).unwrap();
        rig.claims.handle(mine);
        assert!(lock(&rig.claims.claiming).is_empty());
    }
}
