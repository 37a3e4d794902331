//! What a daemon offers the programs of its host: to serve the interface of its uplink beside the daemon, each by a socket of its own.
//!
//! A program connects to a Unix socket of the daemon, and receives one message with the socket on the interface:
//! ```text
//! vicinity-interface 1 INTERFACE ADDRESS HOST\n
//! ```
//! So the program needs neither `CAP_NET_RAW` nor the daemon's network namespace, only the right to connect. Who may connect may send any
//! frame on the interface.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use mxoe::wire::Mac;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::time::Timespec;

/// The name of the daemon's socket in the runtime directory.
pub const SOCKET: &str = "interface.sock";

const MAGIC: &str = "vicinity-interface 1 ";

/// The longest message: an interface's name has 15 bytes, and that of a host 80.
const LONGEST: usize = 256;

/// How long a program waits for the daemon, which answers one program after the other.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// An interface that a daemon offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceOffer {
    /// The name of the interface, in the daemon's network namespace.
    pub interface: String,
    /// Its address.
    pub mac: Mac,
    /// The name of this host for others.
    pub host_name: String,
}

impl InterfaceOffer {
    /// Answers a program that has connected, without waiting for it.
    ///
    /// # Errors
    /// The program has gone.
    pub fn send(&self, program: impl AsFd, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let Self {
            interface,
            mac,
            host_name,
        } = self;
        let text = format!("{MAGIC}{interface} {:012x} {host_name}\n", mac.nic());
        let sockets = [socket];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(text.as_bytes())];
        net::sendmsg(program, &parts, &mut ancillary, flags).map(drop)
    }

    /// Asks the daemon of this runtime directory. `None` if there is no daemon, if the daemon does not offer its interface to this user, or if it
    /// does not answer.
    pub(super) fn ask(runtime_dir: &Path) -> Option<(Self, OwnedFd)> {
        let (text, socket) = exchange(&runtime_dir.join(SOCKET)).ok()?;
        Some((Self::parse(&text)?, socket?))
    }

    /// Returns whether the daemon of this runtime directory offers an interface to any program.
    pub(super) fn is_made(runtime_dir: &Path) -> bool {
        runtime_dir.join(SOCKET).exists()
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let text = text.strip_prefix(MAGIC)?.strip_suffix('\n')?;
        let (interface, rest) = text.split_once(' ')?;
        let (nic, host_name) = rest.split_once(' ')?;
        let mac = Mac::from_nic(u64::from_str_radix(nic, 16).ok()?)?;
        // The name becomes a part of a path.
        let is_name = !interface.is_empty() && !interface.contains('/');
        (is_name && mac.is_host() && !host_name.is_empty()).then(|| Self {
            interface: interface.to_owned(),
            mac,
            host_name: host_name.to_owned(),
        })
    }
}

/// Returns the daemon's message and the socket that came with it.
fn exchange(path: &Path) -> Result<(Vec<u8>, Option<OwnedFd>), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let daemon = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&daemon, &SocketAddrUnix::new(path)?)?;
    poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&PATIENCE))?;
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = net::recvmsg(&daemon, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let sockets = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    let socket = sockets.last();
    text.truncate(got.bytes);
    Ok((text, socket))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn offer() -> InterfaceOffer {
        InterfaceOffer {
            interface: "eth1".to_owned(),
            mac: Mac([2, 0, 0, 0, 0, 7]),
            host_name: "alpha beta".to_owned(),
        }
    }

    /// Answers one program by `answer`; returns what the program found.
    fn asked(
        answer: impl FnOnce(std::os::unix::net::UnixStream) + Send,
    ) -> Option<(InterfaceOffer, OwnedFd)> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || answer(listener.accept().unwrap().0));
            InterfaceOffer::ask(folder.path())
        })
    }

    #[test]
    fn a_program_receives_the_offer_and_its_socket() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let found = asked(move |program| offer().send(&program, theirs.as_fd()).unwrap());
        let (found, socket) = found.unwrap();
        assert_eq!(found, offer());
        let mut socket = std::os::unix::net::UnixStream::from(socket);
        socket.write_all(b"x").unwrap();
        std::io::Read::read_exact(&mut &ours, &mut [0]).unwrap();
    }

    #[test]
    fn without_a_daemon_or_a_sound_answer_there_is_no_offer() {
        let folder = tempfile::tempdir().unwrap();
        assert!(InterfaceOffer::ask(folder.path()).is_none());
        assert!(asked(drop).is_none());
        let write = |text: &'static [u8]| {
            move |mut program: std::os::unix::net::UnixStream| program.write_all(text).unwrap()
        };
        assert!(asked(write(b"vicinity-interface 1 eth1 020000000007 alpha\n")).is_none());
        let sound = b"vicinity-interface 1 eth1 020000000007 alpha\n";
        assert!(InterfaceOffer::parse(sound).is_some());
        for malformed in [
            &b""[..],
            b"\xff",
            b"vicinity-interface 2 eth1 020000000007 alpha\n",
            b"vicinity-interface 1 eth1 020000000007 alpha",
            b"vicinity-interface 1 ../eth1 020000000007 alpha\n",
            b"vicinity-interface 1  020000000007 alpha\n",
            b"vicinity-interface 1 eth1 030000000007 alpha\n",
            b"vicinity-interface 1 eth1 7 \n",
            b"vicinity-interface 1 eth1 1020000000007 alpha\n",
            b"vicinity-interface 1 eth1\n",
        ] {
            assert_eq!(InterfaceOffer::parse(malformed), None, "{malformed:?}");
        }
    }
}
