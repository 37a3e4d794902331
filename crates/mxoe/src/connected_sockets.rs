//! Sockets that are connected to one other program each, beside that of a program whose frames all travel in datagrams.
//!
//! For a socket that is connected, the kernel neither looks up the route of each datagram that arrives, nor of each that is sent: a round trip
//! of 8 B takes a tenth less. Such a socket takes nothing from others, so the program's own socket stays, at the same address and port
//! (`SO_REUSEPORT`, socket(7)): the kernel passes a datagram to the socket that is connected to its sender, if there is one (Linux 5.4 and later).
//!
//! Each look at a socket is a system call. So there are such sockets only as long as the program has few partners' programs.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use crate::connected_socket::ConnectedSocket;

/// Partners' programs that have a socket each, at most. With more of them, the looks take longer than the kernel saves.
const MOST: usize = 2;

/// Looks at the connected sockets between two at the program's own one, while each partner's program has one. Then only what came before the
/// socket was connected is there, and what strangers send.
const LOOKS: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct ConnectedSockets {
    sockets: Vec<ConnectedSocket>,
    /// Those that are not needed any more, until what has arrived there is read.
    retired: Vec<OwnedFd>,
    /// Looks since the last one at the program's own socket.
    looks: u32,
}

impl ConnectedSockets {
    /// Has a socket for each of these programs, or none if they are too many, or if the kernel refuses. `own` has the program's address.
    pub(crate) fn connect_to(&mut self, programs: &[SocketAddr], own: (&OwnedFd, SocketAddr)) {
        let few = programs.len() <= MOST;
        self.retire(|program| !few || !programs.contains(&program));
        self.looks = LOOKS;
        for &program in programs.iter().filter(|_| few) {
            if self.to(program).is_some() {
                continue;
            }
            match ConnectedSocket::open(own, program) {
                Ok(socket) => self.sockets.push(socket),
                // The program's own socket takes and sends everything.
                Err(_) => return self.retire(|_| true),
            }
        }
    }

    fn retire(&mut self, is_unneeded: impl Fn(SocketAddr) -> bool) {
        let sockets = std::mem::take(&mut self.sockets).into_iter();
        let (unneeded, needed): (Vec<_>, _) =
            sockets.partition(|socket| is_unneeded(socket.program()));
        self.sockets = needed;
        let unneeded = unneeded.into_iter().map(ConnectedSocket::into_socket);
        self.retired.extend(unneeded);
    }

    /// Returns the sockets that are not needed any more. The caller reads what has arrived there.
    pub(crate) fn take_retired(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.retired)
    }

    /// Returns the socket that is connected to a program.
    pub(crate) fn to(&self, program: SocketAddr) -> Option<&OwnedFd> {
        let mut all = self.sockets.iter();
        all.find(|socket| socket.program() == program)
            .map(ConnectedSocket::socket)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &OwnedFd> {
        self.sockets.iter().map(ConnectedSocket::socket)
    }

    /// The same, to receive from them.
    pub(crate) fn all_mut(&mut self) -> impl Iterator<Item = &mut ConnectedSocket> {
        self.sockets.iter_mut()
    }

    /// Counts a look at all of these sockets. Returns whether the program's own socket needs one, too.
    pub(crate) fn look(&mut self) -> bool {
        self.looks = self.looks.saturating_add(1);
        let needs = self.sockets.is_empty() || self.looks > LOOKS;
        if needs {
            self.looks = 0;
        }
        needs
    }

    /// The next look includes the program's own socket.
    pub(crate) fn look_everywhere(&mut self) {
        self.looks = LOOKS;
    }
}
