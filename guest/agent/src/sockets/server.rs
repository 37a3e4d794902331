//! The thread that takes AF_VSOCK connections for the servers of this VM, passes them on, and forwards data. It waits in
//! one epoll set for everything.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use socket2::Socket;

use super::address::tcp_of;
use super::claim::{self, Message, Pair};
use super::connections::Connections;
use super::directory::Directory;
use super::key::Key;
use super::listeners::Listeners;
use crate::error::{AgentError, io};

/// Ports below this one are for privileged programs (`ip_unprivileged_port_start`), and those of AF_VSOCK are not.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Longest wait for the message of a program that connected.
const MESSAGE_TIMEOUT: Duration = Duration::from_millis(500);

/// Programs that are connected and have said nothing yet.
const MAX_SILENT: usize = 64;

/// How often time limits are looked at.
const TICK: Duration = Duration::from_millis(50);

/// Most events that one wait reports.
const EVENTS: usize = 64;

/// Where connections come in, as the main thread decides.
#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) listeners: Listeners,
    pub(super) directory: Directory,
}

/// The server's side of the agent.
#[derive(Debug)]
pub(super) struct Server {
    poll: Arc<OwnedFd>,
    open: Arc<Mutex<Open>>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Starts the thread, which takes no connections yet.
    pub(super) fn start() -> Result<Self, AgentError> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC);
        let poll = Arc::new(io(poll, || "create an epoll set".to_owned())?);
        let open = Arc::new(Mutex::new(Open::default()));
        let work = io(Work::new(&poll, &open), || {
            "open the socket of servers".to_owned()
        })?;
        let thread = thread::Builder::new().spawn(|| work.run());
        let thread = io(thread, || "start a thread".to_owned())?;
        Ok(Self { poll, open, thread })
    }

    /// Takes connections of these VMs from now on.
    ///
    /// # Errors
    /// Another program of this VM has a port.
    pub(super) fn update(&self, directory: &Directory) -> io::Result<()> {
        let mut open = lock(&self.open);
        open.directory.clone_from(directory);
        open.listeners.update(directory, &self.poll)
    }

    /// Returns whether the thread still works.
    pub(super) fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    // A thread that panicked left ports open or closed, and the next update corrects them.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the thread has.
struct Work {
    poll: Arc<OwnedFd>,
    open: Arc<Mutex<Open>>,
    connections: Connections,
    claims: UnixListener,
    /// Programs that have said nothing yet, and since when.
    programs: HashMap<u32, (UnixStream, Instant)>,
    last: u32,
    now: Instant,
    looked: Instant,
}

impl Work {
    fn new(poll: &Arc<OwnedFd>, open: &Arc<Mutex<Open>>) -> io::Result<Self> {
        let claims = claim::listen()?;
        epoll::add(poll, &claims, Key::Claims.data(), EventFlags::IN)?;
        let now = Instant::now();
        Ok(Self {
            poll: Arc::clone(poll),
            open: Arc::clone(open),
            connections: Connections::new(Arc::clone(poll)),
            claims,
            programs: HashMap::new(),
            last: 0,
            now,
            looked: now,
        })
    }

    fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let undecided = self.connections.take_undecided();
            let limit = self.limit(undecided.is_empty());
            let buffer = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.poll, buffer, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return eprintln!("vicinity-agent: wait: {error}"),
            }
            self.now = Instant::now();
            if self.now.saturating_duration_since(self.looked) >= TICK {
                self.looked = self.now;
                self.expire();
            }
            for event in &events {
                if let Some(key) = Key::of(event.data) {
                    self.handle(key);
                }
            }
            for number in undecided {
                self.connections.decide(number, self.now);
            }
        }
    }

    /// Returns the longest time to wait for events.
    fn limit(&self, is_decided: bool) -> Option<Timespec> {
        let has_limits = !self.programs.is_empty() || self.connections.have_limits();
        match (is_decided, has_limits) {
            (false, _) => Some(Timespec::default()),
            (true, true) => Timespec::try_from(TICK).ok(),
            (true, false) => None,
        }
    }

    fn expire(&mut self) {
        let now = self.now;
        let is_new = |since: Instant| now.saturating_duration_since(since) < MESSAGE_TIMEOUT;
        self.programs.retain(|_, (_, since)| is_new(*since));
        self.connections.expire(now);
    }

    fn handle(&mut self, key: Key) {
        match key {
            Key::Listener(port) => self.accept(port),
            Key::Agent => self.accept_agent(),
            Key::Claims => match self.claims.accept() {
                Ok((program, _)) => self.hear(program, self.now),
                Err(error) => pause(&error),
            },
            Key::Program(number) => {
                if let Some((program, since)) = self.programs.remove(&number) {
                    self.hear(program, since);
                }
            }
            Key::Tcp(number) | Key::Vsock(number) | Key::Taker(number) => {
                self.connections.step(number, self.now);
            }
        }
    }

    /// Takes a connection. A connection that is dropped goes by TCP.
    fn accept(&mut self, port: u32) {
        let open = lock(&self.open);
        let Some(listener) = open.listeners.all.get(&port) else {
            return;
        };
        let (vsock, from) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => return pause(&error),
        };
        let from = from.as_vsock_address();
        let pair = from.and_then(|from| Some((from.0, pair(&open.directory, from, port)?)));
        drop(open);
        if let Some((cid, pair)) = pair {
            // An error ends this connection only.
            drop(self.connections.begin(cid, pair, vsock, self.now));
        }
    }

    /// Notifies another VM's agent that this VM takes connections.
    fn accept_agent(&self) {
        let mut open = lock(&self.open);
        let accepted = open.listeners.agent.as_ref().map(Socket::accept);
        match accepted {
            Some(Ok((peer, from))) => {
                if let Some((cid, _)) = from.as_vsock_address() {
                    open.listeners.notify(cid, peer);
                }
            }
            Some(Err(error)) => pause(&error),
            None => {}
        }
    }

    /// Handles the message of a program, or waits for it.
    fn hear(&mut self, program: UnixStream, since: Instant) {
        match claim::receive(&program) {
            Ok(Message::Listening(port)) => self.connections.claims_come(port),
            Ok(Message::Claim(pair)) => self.connections.claim(pair, program, self.now),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(program, since),
            // It says nothing that means something.
            Err(_) => {}
        }
    }

    fn wait(&mut self, program: UnixStream, since: Instant) {
        if self.programs.len() >= MAX_SILENT {
            return;
        }
        self.last = self.last.wrapping_add(1);
        let data = Key::Program(self.last).data();
        if epoll::add(&self.poll, &program, data, EventFlags::IN).is_ok() {
            self.programs.insert(self.last, (program, since));
        }
    }
}

/// Waits after an error of `accept`: without descriptors, the next try must not come at once.
fn pause(error: &io::Error) {
    if error.kind() != io::ErrorKind::WouldBlock {
        thread::sleep(Duration::from_millis(10));
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
}
