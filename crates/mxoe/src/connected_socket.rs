//! A socket that is connected to one other program.
//!
//! Only a call with headers and control messages (recvmsg(2)) tells the sender of a datagram, and the length of those that the kernel has joined
//! (`UDP_GRO`, udp(7)). A call without them (recv(2)) takes the kernel less time. Where datagrams come one by one, as the answers of a program that waits for each do,
//! the kernel joins none, and the socket is read by recv. Such a datagram is of the program to which the socket is connected: some time after the connect, nothing else
//! can be at the socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use rustix::net;
use rustix::net::sockopt as options;

use crate::datagram_socket::{self, Fragments, Reader, on_link_of};
use crate::refused_datagrams::keep_errors;

/// How long a datagram of another sender may be on its way to the socket: the kernel may have chosen it before the connect. It passes a datagram on in microseconds,
/// unless a hypervisor stops the processor meanwhile.
const SETTLING: Duration = Duration::from_millis(100);

/// Looks with one datagram each, after which the kernel joins none any more.
const SINGLE: u32 = 64;

/// Datagrams of a look, from which on the kernel joins them again.
const MANY: usize = 4;

#[derive(Debug)]
pub(crate) struct ConnectedSocket {
    program: SocketAddr,
    socket: OwnedFd,
    connected: Instant,
    /// [`SETTLING`] was over at a look.
    is_settled: bool,
    /// Whether the kernel joins datagrams.
    has_gro: bool,
    /// Looks that have found one datagram each, since one that has found more.
    single: u32,
}

impl ConnectedSocket {
    /// Opens a socket at the address of a program's own socket, and connects it to another program.
    pub(crate) fn open(
        (own, address): (&OwnedFd, SocketAddr),
        program: SocketAddr,
    ) -> io::Result<Self> {
        let socket = datagram_socket::unbound(address, Fragments::Yes)?;
        // Not before the kernel has chosen the port: it could choose that of another program of the same user.
        options::set_socket_reuseport(own, true)?;
        options::set_socket_reuseport(&socket, true)?;
        net::bind(&socket, &address)?;
        // From here on until it is connected, datagrams of others may arrive, which the node tells by their address.
        net::connect(&socket, &on_link_of(address, program))?;
        // The program is on this link, or the connect would have failed. With this option, the kernel looks up each route all the same.
        setsockopt(&socket, sockopt::DontRoute, &false)?;
        keep_errors(&socket, address)?;
        Ok(Self {
            program,
            socket,
            connected: Instant::now(),
            is_settled: false,
            has_gro: true,
            single: 0,
        })
    }

    pub(crate) fn program(&self) -> SocketAddr {
        self.program
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    pub(crate) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    /// Hands frames that have arrived to `take`, as [`Reader::receive`].
    pub(crate) fn receive(
        &mut self,
        reader: &mut Reader,
        most: usize,
        take: &mut impl FnMut(SocketAddr, &[u8]),
    ) -> (usize, bool) {
        let (count, has_error) = match self.has_gro {
            true => reader.receive(&self.socket, most, take),
            false => {
                let program = self.program;
                reader.receive_from_one(&self.socket, most, |frame| take(program, frame))
            }
        };
        match count {
            0 => {}
            1 => self.found_one(),
            _ => self.found_more(count),
        }
        (count, has_error)
    }

    fn found_one(&mut self) {
        self.single = self.single.saturating_add(1);
        if self.has_gro && self.single >= SINGLE {
            self.single = 0;
            match self.is_settled {
                // What had arrived until then has been read since, with its sender.
                true => self.set_gro(false),
                false => self.is_settled = self.connected.elapsed() >= SETTLING,
            }
        }
    }

    fn found_more(&mut self, count: usize) {
        self.single = 0;
        if !self.has_gro && count >= MANY {
            self.set_gro(true);
        }
    }

    /// What the kernel has joined before `UDP_GRO` is off, and nothing has read yet, then counts as one datagram: its first frame is taken, and the partner
    /// sends the others again, as if they were lost. After so many looks with one datagram each, there is nearly never any.
    fn set_gro(&mut self, on: bool) {
        if setsockopt(&self.socket, sockopt::UdpGroSegment, &on).is_ok() {
            self.has_gro = on;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

    const FRAME: [u8; 60] = [7; 60];

    /// A socket that is connected to a program of this host, the program, and the program's own socket.
    struct Both {
        connected: ConnectedSocket,
        program: UdpSocket,
        reader: Reader,
        _own: OwnedFd,
    }

    impl Both {
        fn new() -> Self {
            let own = datagram_socket::open(([127, 0, 0, 1], 0).into(), Fragments::Yes).unwrap();
            let address = SocketAddr::try_from(net::getsockname(&own).unwrap()).unwrap();
            let program = UdpSocket::bind("127.0.0.1:0").unwrap();
            let other = program.local_addr().unwrap();
            let connected = ConnectedSocket::open((&own, address), other).unwrap();
            program.connect(address).unwrap();
            Self {
                connected,
                program,
                reader: Reader::new(),
                _own: own,
            }
        }

        /// Sends frames of equal length by one call, as a program does.
        fn send(&self, count: usize) {
            let parts = [IoSlice::new(&FRAME)].repeat(count);
            let segments = [ControlMessage::UdpGsoSegments(&60)];
            let control = if count > 1 { &segments[..] } else { &[] };
            let (fd, flags) = (self.program.as_raw_fd(), MsgFlags::empty());
            sendmsg::<()>(fd, &parts, control, flags, None).unwrap();
        }

        /// Looks once, and returns how many frames it has found. Each is whole and from the program.
        fn look(&mut self) -> usize {
            let from = self.program.local_addr().unwrap();
            let mut take = |sender, frame: &[u8]| assert_eq!((sender, frame), (from, &FRAME[..]));
            let (count, has_error) = self.connected.receive(&mut self.reader, 16, &mut take);
            assert!(!has_error);
            count
        }

        fn pass_one_by_one(&mut self, count: u32) {
            for _ in 0..count {
                self.send(1);
                assert_eq!(self.look(), 1);
            }
        }

        fn has_gro(&self) -> bool {
            let option =
                nix::sys::socket::getsockopt(&self.connected.socket, sockopt::UdpGroSegment);
            assert_eq!(option.unwrap(), self.connected.has_gro);
            self.connected.has_gro
        }

        fn settled() -> Self {
            let mut both = Self::new();
            std::thread::sleep(SETTLING);
            both.pass_one_by_one(SINGLE);
            assert!(both.has_gro());
            both
        }
    }

    #[test]
    fn the_kernel_joins_no_datagrams_once_they_come_one_by_one() {
        let mut both = Both::settled();
        both.pass_one_by_one(SINGLE - 1);
        assert!(both.has_gro());
        both.pass_one_by_one(1);
        assert!(!both.has_gro());
        both.pass_one_by_one(100);
        assert!(!both.has_gro());
        assert_eq!(both.look(), 0);
    }

    /// What the kernel has sent to the socket before the connect may be of any sender.
    #[test]
    fn a_socket_that_was_connected_just_now_is_read_with_the_sender() {
        let mut both = Both::new();
        both.pass_one_by_one(2 * SINGLE);
        // On a slow machine, the socket is old by now.
        if both.connected.connected.elapsed() < SETTLING {
            assert!(both.has_gro());
        }
        std::thread::sleep(SETTLING);
        both.pass_one_by_one(2 * SINGLE);
        assert!(!both.has_gro());
    }

    /// Without `UDP_GRO`, the kernel cuts a batch for the socket (udp(7)).
    #[test]
    fn the_kernel_joins_datagrams_again_once_many_come() {
        let mut both = Both::settled();
        for _ in 0..3 {
            both.pass_one_by_one(SINGLE);
            assert!(!both.has_gro());
            both.send(MANY - 1);
            assert_eq!(both.look(), MANY - 1);
            assert!(!both.has_gro());
            both.send(MANY);
            assert_eq!(both.look(), MANY);
            assert!(both.has_gro());
            both.send(50);
            assert_eq!(both.look(), 50);
        }
    }

    #[test]
    fn looks_that_find_more_than_one_datagram_count_from_the_start() {
        let mut both = Both::settled();
        both.pass_one_by_one(SINGLE - 1);
        both.send(2);
        assert_eq!(both.look(), 2);
        both.pass_one_by_one(SINGLE - 1);
        assert!(both.has_gro());
        both.pass_one_by_one(1);
        assert!(!both.has_gro());
    }

    #[test]
    fn a_read_without_gro_returns_no_more_than_asked_for() {
        let mut both = Both::settled();
        both.pass_one_by_one(SINGLE);
        both.send(1);
        both.send(1);
        let mut take = |_, _: &[u8]| {};
        let mut receive = |most| both.connected.receive(&mut both.reader, most, &mut take);
        assert_eq!(receive(1), (1, false));
        assert_eq!(receive(2), (1, false));
        assert_eq!(receive(2), (0, false));
    }

    /// RFC 1122, section 4.1.3.1: the host of a program that has ended refuses its datagrams.
    #[test]
    fn a_read_without_gro_tells_that_the_kernel_has_reported_an_error() {
        let mut both = Both::settled();
        both.pass_one_by_one(SINGLE);
        let Both {
            mut connected,
            program,
            mut reader,
            _own,
        } = both;
        drop(program);
        net::send(connected.socket(), &FRAME, net::SendFlags::empty()).unwrap();
        let mut take = |_, _: &[u8]| {};
        assert_eq!(connected.receive(&mut reader, 16, &mut take), (0, true));
        assert_eq!(connected.receive(&mut reader, 16, &mut take), (0, false));
    }
}
