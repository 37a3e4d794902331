//! The AF_VSOCK ports on which this VM takes connections for its servers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventFlags};
use socket2::Socket;

use super::address::{AGENT_PORT, listen, port_of};
use super::directory::Directory;
use super::key::Key;

/// Most ports, of all addresses together.
const MAX_PORTS: usize = 512;

/// The open ports.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// By the port.
    pub(super) all: BTreeMap<u32, Socket>,
    /// The port of this agent. It is open only while this agent has all others.
    pub(super) agent: Option<Socket>,
    /// The agents of other VMs which know that this VM takes connections, by their CIDs. When their connections end, they
    /// stop to send clients here.
    notified: BTreeMap<u32, Socket>,
}

impl Listeners {
    /// Opens the ports that the directory allows, and closes others. The epoll set reports connections.
    ///
    /// # Errors
    /// Another program of this VM has a port. Then this VM notifies no peer.
    pub(super) fn update(&mut self, directory: &Directory, poll: &OwnedFd) -> io::Result<()> {
        let wanted = wanted(directory);
        if wanted.is_empty() || self.all.keys().any(|port| !wanted.contains(port)) {
            self.withdraw();
        }
        self.all.retain(|port, _| wanted.contains(port));
        for port in &wanted {
            if !self.all.contains_key(port) {
                let socket = watch(listen(*port), poll, Key::Listener(*port));
                let socket = socket.inspect_err(|_| self.withdraw());
                self.all
                    .insert(*port, socket.map_err(|error| taken(*port, &error))?);
            }
        }
        if self.agent.is_none() && !wanted.is_empty() {
            let socket = watch(listen(AGENT_PORT), poll, Key::Agent);
            self.agent = Some(socket.map_err(|error| taken(AGENT_PORT, &error))?);
        }
        self.notified.retain(|_, peer| is_open(peer));
        Ok(())
    }

    /// Notifies an agent of another VM that this VM takes connections. A VM has one such connection, so that none takes the
    /// place of others.
    pub(super) fn notify(&mut self, cid: u32, mut peer: Socket) {
        let notified = peer
            .set_nonblocking(true)
            .and_then(|()| peer.write_all(b"1"));
        if notified.is_ok() {
            self.notified.insert(cid, peer);
        }
    }

    fn withdraw(&mut self) {
        self.agent = None;
        self.notified.clear();
    }
}

fn watch(socket: io::Result<Socket>, poll: &OwnedFd, key: Key) -> io::Result<Socket> {
    let socket = socket?;
    epoll::add(poll, &socket, key.data(), EventFlags::IN)?;
    Ok(socket)
}

/// Returns whether the other end has not closed the connection.
fn is_open(mut peer: &Socket) -> bool {
    let mut byte = [0];
    peer.read(&mut byte)
        .is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn taken(port: u32, error: &io::Error) -> io::Error {
    let text = format!(
        "no connections come by AF_VSOCK, because the agent cannot listen on port {port}: {error} (does another \
         program use it?)"
    );
    io::Error::new(error.kind(), text)
}

/// Returns the ports of this VM's addresses that the host allows.
fn wanted(directory: &Directory) -> BTreeSet<u32> {
    let mut ports = BTreeSet::new();
    for entry in directory.own() {
        for port in entry.ports.iter().cloned().flatten() {
            if ports.len() == MAX_PORTS {
                return ports;
            }
            ports.insert(port_of(entry.index, port));
        }
    }
    ports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_those_of_this_vm_and_bounded() {
        let read = |ports: &str| {
            let text = format!(
                "vicinity-sockets 1\nself 3\naddress 3 0 1 10.0.0.3 {ports}\naddress 3 1 2 10.1.0.3 22\n\
                 address 4 0 1 10.0.0.4 80\nend\n"
            );
            Directory::read(&text).unwrap()
        };
        let all: Vec<_> = wanted(&read("22 5000-5001")).into_iter().collect();
        let ports = [(0, 22), (0, 5000), (0, 5001), (1, 22)];
        assert_eq!(all, ports.map(|(index, port)| port_of(index, port)));
        assert_eq!(wanted(&read("0-65535")).len(), MAX_PORTS);
    }
}
