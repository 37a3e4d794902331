//! The connections that no server has taken over yet, and those that the agent forwards.
//!
//! ```text
//!  begin ─▶ Connecting ─▶ Offered ─▶ Passed ─▶ the server has it
//!           TCP, to the     │ no claim  │ the server does not say that it has it
//!           server          ▼           ▼
//!                        Forwarding ◀───┘
//! ```
//! An error ends a connection, and no other one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll::{self, EventFlags};
use rustix::net::{SendFlags, send};
use socket2::Socket;

use super::claim::{self, Pair};
use super::forward::Forward;
use super::key::Key;
use super::tcp_connect;

/// What the client waits for: guest/sockets/layout.h.
const ACCEPTED: u8 = 1;

/// Most connections of one VM that no server has taken over. Further ones go by TCP.
const MAX_OF_VM: usize = 256;

/// Longest wait for the server's kernel; a client that does not block waits for 250 ms, other clients for three seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

/// How long a server may leave a connection in its queue before the agent forwards the data instead.
const CLAIM_TIMEOUT: Duration = Duration::from_secs(2);

/// All connections of the agent.
#[derive(Debug)]
pub(super) struct Connections {
    poll: Arc<OwnedFd>,
    all: HashMap<u32, Connection>,
    by_pair: HashMap<Pair, u32>,
    /// How many connections each CID has.
    of_vm: HashMap<u32, usize>,
    /// The TCP ports whose servers claim connections.
    claiming: HashSet<u16>,
    /// The connections with a time limit.
    limited: BTreeSet<u32>,
    /// The connections to servers that have not announced themselves. A claim of theirs may be there already.
    undecided: Vec<u32>,
    last: u32,
}

#[derive(Debug)]
struct Connection {
    number: u32,
    cid: u32,
    pair: Pair,
    vsock: Socket,
    tcp: Socket,
    /// The program that claimed it.
    program: Option<UnixStream>,
    stage: Stage,
    /// The events for which the epoll set has the sockets: AF_VSOCK, TCP.
    watched: [EventFlags; 2],
}

#[derive(Debug)]
enum Stage {
    /// Since this time.
    Connecting(Instant),
    /// Since this time, and whether the server's claim is waited for.
    Offered(Instant, bool),
    Passed,
    Forwarding(Forward),
}

impl Connections {
    /// Returns no connections, whose events come from this epoll set.
    pub(super) fn new(poll: Arc<OwnedFd>) -> Self {
        Self {
            poll,
            all: HashMap::new(),
            by_pair: HashMap::new(),
            of_vm: HashMap::new(),
            claiming: HashSet::new(),
            limited: BTreeSet::new(),
            undecided: Vec::new(),
            last: 0,
        }
    }

    /// Takes a client's connection. One that is dropped goes by TCP.
    ///
    /// # Errors
    /// There is a connection between the same addresses, the VM has too many, or the server is not there.
    pub(super) fn begin(
        &mut self,
        cid: u32,
        pair: Pair,
        vsock: Socket,
        now: Instant,
    ) -> io::Result<()> {
        if self.by_pair.contains_key(&pair)
            || self.of_vm.get(&cid).is_some_and(|of| *of >= MAX_OF_VM)
        {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let tcp = tcp_connect::begin(pair)?;
        self.add(cid, pair, [vsock, tcp], now);
        Ok(())
    }

    fn add(&mut self, cid: u32, pair: Pair, [vsock, tcp]: [Socket; 2], now: Instant) {
        self.last = self.last.wrapping_add(1);
        while self.all.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        let connection = Connection {
            number: self.last,
            cid,
            pair,
            vsock,
            tcp,
            program: None,
            stage: Stage::Connecting(now),
            watched: [EventFlags::empty(); 2],
        };
        self.by_pair.insert(pair, self.last);
        *self.of_vm.entry(cid).or_default() += 1;
        self.all.insert(self.last, connection);
        self.limited.insert(self.last);
        self.step(self.last, now);
    }

    /// Continues a connection with what is there now.
    pub(super) fn step(&mut self, number: u32, now: Instant) {
        self.continue_with(number, now, false);
    }

    /// Returns the connections of which [`decide`](Self::decide) is to be called after the events that are there.
    pub(super) fn take_undecided(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.undecided)
    }

    /// Forwards a connection, unless its server has claimed it or is expected to.
    pub(super) fn decide(&mut self, number: u32, now: Instant) {
        self.continue_with(number, now, true);
    }

    fn continue_with(&mut self, number: u32, now: Instant, may_forward: bool) {
        let Some(connection) = self.all.get_mut(&number) else {
            return;
        };
        let step = connection.step(&self.poll, &mut self.claiming, now, may_forward);
        if !connection.has_limit() {
            self.limited.remove(&number);
        } else if !may_forward && connection.is_unannounced() {
            self.undecided.push(number);
        }
        if !matches!(step, Ok(false)) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u32) {
        let Some(mut connection) = self.all.remove(&number) else {
            return;
        };
        // Closing does not remove a socket of which a program has a duplicate.
        drop(connection.watch(&self.poll, [EventFlags::empty(); 2]));
        self.limited.remove(&number);
        self.by_pair.remove(&connection.pair);
        if let Some(count) = self.of_vm.get_mut(&connection.cid) {
            *count -= 1;
        }
        self.of_vm.retain(|_, count| *count > 0);
    }

    /// Notes that servers of a TCP port claim connections.
    pub(super) fn claims_come(&mut self, port: u16) {
        self.claiming.insert(port);
    }

    /// Passes a connection to the program that accepted its TCP connection. Late claims get nothing, and each claim shows
    /// that servers of the port claim connections.
    pub(super) fn claim(&mut self, pair: Pair, program: UnixStream, now: Instant) {
        let Some(number) = self.by_pair.get(&pair).copied() else {
            return;
        };
        self.claims_come(pair.1.port());
        let connection = self.all.get_mut(&number);
        let Some(connection) = connection.filter(|one| one.is_claimable()) else {
            return;
        };
        connection.program = Some(program);
        self.step(number, now);
    }

    /// Returns whether a connection has a time limit.
    pub(super) fn have_limits(&self) -> bool {
        !self.limited.is_empty()
    }

    /// Continues the connections whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        for number in self.limited.clone() {
            self.decide(number, now);
        }
    }
}

impl Connection {
    fn is_claimable(&self) -> bool {
        self.has_limit() && self.program.is_none()
    }

    fn has_limit(&self) -> bool {
        matches!(self.stage, Stage::Connecting(_) | Stage::Offered(..))
    }

    fn is_unannounced(&self) -> bool {
        matches!(self.stage, Stage::Offered(_, false))
    }

    /// Returns whether the connection has ended here.
    fn step(
        &mut self,
        poll: &OwnedFd,
        claiming: &mut HashSet<u16>,
        now: Instant,
        may_forward: bool,
    ) -> io::Result<bool> {
        if let Stage::Connecting(since) = self.stage {
            if !tcp_connect::is_done(&self.tcp, self.pair)? {
                if now.saturating_duration_since(since) >= CONNECT_TIMEOUT {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                self.watch(poll, [EventFlags::empty(), EventFlags::OUT])?;
                return Ok(false);
            }
            self.watch(poll, [EventFlags::empty(); 2])?;
            send(&self.vsock, &[ACCEPTED], SendFlags::DONTWAIT)?;
            self.stage = Stage::Offered(now, false);
        }
        if let Stage::Offered(since, was_expected) = self.stage {
            if self.has_passed(poll)? {
                self.stage = Stage::Passed;
                return Ok(false);
            }
            let port = self.pair.1.port();
            // Later the port may be taken for another program's, because one connection was not claimed in time.
            let is_expected = was_expected || claiming.contains(&port);
            self.stage = Stage::Offered(since, is_expected);
            if is_expected && now.saturating_duration_since(since) < CLAIM_TIMEOUT {
                return Ok(false);
            }
            if !may_forward {
                return Ok(false);
            }
            // Another program may have the port now.
            claiming.remove(&port);
        }
        if let (Stage::Passed, Some(program)) = (&self.stage, &self.program) {
            match claim::has_taken(program) {
                Some(true) => return Ok(true),
                Some(false) => self.program = None,
                // Another event of the connection, which was there before the program could say anything.
                None => return Ok(false),
            }
        }
        self.forward(poll)
    }

    /// Passes the connection, if a program claimed it.
    fn has_passed(&mut self, poll: &OwnedFd) -> io::Result<bool> {
        let Some(program) = &self.program else {
            return Ok(false);
        };
        if claim::give(program, &self.vsock).is_err() {
            self.program = None;
            return Ok(false);
        }
        epoll::add(
            poll,
            program,
            Key::Taker(self.number).data(),
            EventFlags::IN,
        )?;
        Ok(true)
    }

    fn forward(&mut self, poll: &OwnedFd) -> io::Result<bool> {
        if !matches!(self.stage, Stage::Forwarding(_)) {
            self.tcp.set_tcp_nodelay(true)?;
            self.vsock.set_nonblocking(true)?;
            self.stage = Stage::Forwarding(Forward::default());
        }
        let Stage::Forwarding(forward) = &mut self.stage else {
            return Ok(true);
        };
        if forward.step(&self.vsock, &self.tcp)? {
            return Ok(true);
        }
        let interest = forward.interest();
        self.watch(poll, interest)?;
        Ok(false)
    }

    /// Watches for these events. A socket without any is not in the set, because it would report its end forever.
    fn watch(&mut self, poll: &OwnedFd, interest: [EventFlags; 2]) -> io::Result<()> {
        let keys = [Key::Vsock(self.number), Key::Tcp(self.number)];
        let sockets = [&self.vsock, &self.tcp].map(Socket::as_fd);
        for (((watched, wanted), key), socket) in
            self.watched.iter_mut().zip(interest).zip(keys).zip(sockets)
        {
            match (watched.is_empty(), wanted.is_empty()) {
                _ if *watched == wanted => continue,
                (true, _) => epoll::add(poll, socket, key.data(), wanted)?,
                (false, true) => epoll::delete(poll, socket)?,
                (false, false) => epoll::modify(poll, socket, key.data(), wanted)?,
            }
            *watched = wanted;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
