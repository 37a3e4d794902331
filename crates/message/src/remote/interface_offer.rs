//! What a daemon offers the programs of its host: to serve the interface of its uplink beside the daemon, each by a socket of its own.
//!
//! A program connects to a Unix socket of the daemon, and receives one message with a packet socket on the interface, and with a UDP
//! socket if the interface has an address:
//! ```text
//! vicinity-interface 1 INTERFACE ADDRESS HOST\n
//! ```
//! So the program needs neither `CAP_NET_RAW` nor the daemon's network namespace, only the right to connect. Who may connect may send any
//! frame on the interface.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
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

/// The sockets that come with an offer.
#[derive(Debug)]
pub struct OfferedSockets {
    /// For a [`Port`](mxoe::Port).
    pub frames: OwnedFd,
    /// For [`Datagrams`](mxoe::Datagrams). Daemons of earlier releases have none.
    pub datagrams: Option<OwnedFd>,
}

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
    pub fn send(&self, program: impl AsFd, offered: &OfferedSockets) -> Result<(), Errno> {
        let Self {
            interface,
            mac,
            host_name,
        } = self;
        let text = format!("{MAGIC}{interface} {:012x} {host_name}\n", mac.nic());
        let sockets = [Some(&offered.frames), offered.datagrams.as_ref()];
        let sockets: Vec<_> = sockets.into_iter().flatten().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let parts = [IoSlice::new(text.as_bytes())];
        net::sendmsg(program, &parts, &mut ancillary, flags).map(drop)
    }

    /// Asks the daemon of this runtime directory. `None` if there is no daemon, if the daemon does not offer its interface to this user, or if it
    /// does not answer.
    pub(super) fn ask(runtime_dir: &Path) -> Option<(Self, OfferedSockets)> {
        let (text, sockets) = exchange(&runtime_dir.join(SOCKET)).ok()?;
        let mut sockets = sockets.into_iter();
        let offered = OfferedSockets {
            frames: sockets.next()?,
            datagrams: sockets.next(),
        };
        Some((Self::parse(&text)?, offered))
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

/// Returns the daemon's message and the sockets that came with it.
fn exchange(path: &Path) -> Result<(Vec<u8>, Vec<OwnedFd>), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let daemon = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&daemon, &SocketAddrUnix::new(path)?)?;
    poll(&mut [PollFd::new(&daemon, PollFlags::IN)], Some(&PATIENCE))?;
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = net::recvmsg(&daemon, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let sockets = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let sockets = sockets.flatten().collect();
    text.truncate(got.bytes);
    Ok((text, sockets))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn offer() -> InterfaceOffer {
        InterfaceOffer {
            interface: "eth1".to_owned(),
            mac: Mac([2, 0, 0, 0, 0, 7]),
            host_name: "alpha beta".to_owned(),
        }
    }

    /// Answers one program by `answer`; returns what the program found.
    fn asked(answer: impl FnOnce(UnixStream) + Send) -> Option<(InterfaceOffer, OfferedSockets)> {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join(SOCKET)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || answer(listener.accept().unwrap().0));
            InterfaceOffer::ask(folder.path())
        })
    }

    /// Returns what the other end of a received socket receives from it.
    fn received_from(socket: OwnedFd, mut other_end: UnixStream) -> [u8; 1] {
        UnixStream::from(socket).write_all(b"x").unwrap();
        let mut byte = [0];
        other_end.read_exact(&mut byte).unwrap();
        byte
    }

    #[test]
    fn a_program_receives_the_offer_and_its_sockets() {
        for has_datagrams in [true, false] {
            let [(frames, theirs), (datagrams, their_datagrams)] =
                std::array::from_fn(|_| UnixStream::pair().unwrap());
            let sockets = OfferedSockets {
                frames: theirs.into(),
                datagrams: has_datagrams.then(|| their_datagrams.into()),
            };
            let found = asked(move |program| offer().send(&program, &sockets).unwrap());
            let (found, sockets) = found.unwrap();
            assert_eq!(found, offer());
            assert_eq!(received_from(sockets.frames, frames), *b"x");
            assert_eq!(sockets.datagrams.is_some(), has_datagrams);
            if let Some(socket) = sockets.datagrams {
                assert_eq!(received_from(socket, datagrams), *b"x");
            }
        }
    }

    #[test]
    fn without_a_daemon_or_a_sound_answer_there_is_no_offer() {
        let folder = tempfile::tempdir().unwrap();
        assert!(InterfaceOffer::ask(folder.path()).is_none());
        assert!(asked(drop).is_none());
        let write =
            |text: &'static [u8]| move |mut program: UnixStream| program.write_all(text).unwrap();
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
