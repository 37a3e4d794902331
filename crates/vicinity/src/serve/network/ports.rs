//! Adding ports to a network, and their numbers.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use switch::control::PortId;
use tokio::sync::Notify;

use super::Network;
use super::folder;
use super::message::Message;
use super::port::{Port, PortKind, Settings};
use super::resources::OpenedPort;
use crate::config::MAX_PORTS;
use crate::name;
use crate::serve::connections;
use crate::serve::interface;

impl Network {
    /// Handles paths that appeared in watched folders.
    pub(in crate::serve) fn appeared(&mut self, paths: &[PathBuf]) {
        for path in paths {
            let known = self.ports.values().find(|port| match &port.kind {
                PortKind::Server { socket } | PortKind::Client { socket, .. } => socket == path,
                PortKind::Uplink(_) => false,
            });
            match known.map(|port| &port.kind) {
                Some(PortKind::Client { wake, .. }) => wake.notify_one(),
                Some(_) => {}
                None => self.add_unlisted(path),
            }
        }
    }

    /// Adds a port for a path that belongs to none, if the network accepts unlisted ports.
    fn add_unlisted(&mut self, path: &Path) {
        let here = path.parent() == Some(&self.config.folder);
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let is_socket = path
            .extension()
            .is_some_and(|extension| extension == "sock");
        let Some(vm) = stem.filter(|_| self.config.accept && here && is_socket) else {
            return;
        };
        if let Err(error) = name::check(vm) {
            tracing::warn!(socket = %path.display(), %error, "ignored a socket because its name is not valid");
            return;
        }
        if self.ports.values().any(|port| port.name == vm) {
            tracing::warn!(socket = %path.display(), "ignored a socket: VM {vm} has another one");
            return;
        }
        let settings = Settings::of_rules(&self.config.unlisted_rules);
        self.dialed(vm, path.to_owned(), settings);
    }

    /// Adds a listed port.
    pub(in crate::serve) fn configured(&mut self, (config, socket): OpenedPort) {
        let settings = Settings::from(&config);
        let Some((listener, file)) = socket else {
            return self.dialed(&config.vm, config.socket, settings);
        };
        let kind = PortKind::Server {
            socket: config.socket,
        };
        if let Some(mut port) = self.new_port(&config.vm, kind, settings) {
            let id = port.id;
            let wrap = move |connection| Message::Connected(id, connection);
            let task = connections::accept(listener, self.sender.clone(), wrap);
            port.set_source(tokio::spawn(task).abort_handle(), Some(file));
            self.ports.insert(port.id, port);
        }
    }

    fn dialed(&mut self, vm: &str, socket: PathBuf, settings: Settings) {
        let wake = Arc::new(Notify::new());
        let kind = PortKind::Client {
            socket: socket.clone(),
            wake: wake.clone(),
        };
        if let Some(mut port) = self.new_port(vm, kind, settings) {
            let id = port.id;
            let arrived = move |connection| Message::Connected(id, connection);
            let unreachable = move |reason| Message::Unreachable { port: id, reason };
            let to = self.sender.clone();
            let task = connections::dial(socket, wake, to, arrived, unreachable);
            port.set_source(tokio::spawn(task).abort_handle(), None);
            self.ports.insert(port.id, port);
        }
    }

    /// Returns a port with a free number, set up in the data plane.
    pub(in crate::serve) fn new_port(
        &mut self,
        vm: &str,
        kind: PortKind,
        settings: Settings,
    ) -> Option<Port> {
        if self.ports.len() >= MAX_PORTS {
            self.remove_absent_port();
        }
        // The lowest free number: the data plane may keep tables by number.
        let free = (0..u16::MAX)
            .map(PortId)
            .take(MAX_PORTS)
            .find(|id| !self.ports.contains_key(id) && !self.leaving.contains_key(id));
        let Some(id) = free else {
            tracing::error!(
                network = %self.config.name,
                vm,
                "cannot add a port for this VM: the network has {MAX_PORTS} ports, which is the maximum; move \
                    VMs to another network"
            );
            return None;
        };
        let port = Port::new(id, vm, kind, settings);
        port.set_up(&mut self.plane.orders);
        Some(port)
    }

    /// Adds the uplink's port.
    pub(in crate::serve) fn new_uplink(&mut self, queues: Vec<OwnedFd>) {
        let Some(config) = &self.config.uplink else {
            return;
        };
        let name = config.name().to_owned();
        let uplink_kind = match interface::uplink_kind(config) {
            Ok(kind) => kind,
            Err(error) => {
                tracing::error!(network = %self.config.name, "{error}");
                return;
            }
        };
        let settings = Settings::of_rules(&self.config.uplink_rules);
        if let Some(port) = self.new_port(&name, PortKind::Uplink(uplink_kind), settings) {
            self.uplink = Some((port.id, queues));
            self.ports.insert(port.id, port);
            self.attach_uplink();
        }
    }

    /// Handles the sockets that are in the network's folder already.
    pub(in crate::serve) fn scan_folder(&mut self) {
        if self.config.accept {
            self.appeared(&folder::entries(&self.config.folder.clone()));
        }
    }

    /// Makes room by removing an unlisted port whose socket is gone.
    fn remove_absent_port(&mut self) {
        let listed = |vm: &str| self.config.ports.iter().any(|port| port.vm == vm);
        let gone = self.ports.values().find(|port| match &port.kind {
            PortKind::Client { socket, .. } => {
                port.idle() && !socket.exists() && !listed(&port.name)
            }
            _ => false,
        });
        if let Some(id) = gone.map(|port| port.id) {
            self.remove(id);
        }
    }
}
