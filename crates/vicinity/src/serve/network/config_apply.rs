//! Brings a changed configuration into force. Everything that can fail was done before ([`Change`]).

use std::os::fd::OwnedFd;

use switch::control::{Order, PortId};
use tokio::sync::oneshot;

use super::Network;
use super::config_diff::Change;
use super::port::{PortKind, Settings};
use super::resources;
use crate::config::{self, Mode};

impl Network {
    /// Applies `change`; notifies `done` when the removed ports are detached.
    pub(in crate::serve) fn change(&mut self, change: Change, done: oneshot::Sender<()>) {
        let before = std::mem::replace(&mut self.config, change.config);
        if change.restart {
            self.renew();
        }
        self.set_up();
        for vm in &change.removed {
            self.remove_named(vm);
        }
        self.change_uplink(&before, change.uplink);
        for port in change.changed {
            self.change_port(&port.vm, &port);
        }
        for opened in change.added {
            // A listed port replaces an unlisted one of the same VM.
            self.remove_named(&opened.0.vm);
            self.watch_for(&opened.0);
            self.configured(opened);
        }
        self.change_unlisted(&before);
        self.scan_folder();
        self.order_mirrors();
        tracing::info!(network = %self.config.name, "applied a changed configuration");
        self.changing.push(done);
        self.all_left();
    }

    fn change_uplink(&mut self, before: &config::Network, uplink: Option<Option<Vec<OwnedFd>>>) {
        if let Some(new) = uplink {
            if let Some((id, _)) = self.uplink.take() {
                self.remove(id);
            }
            if let Some(new) = new {
                self.new_uplink(new);
            }
        } else if before.uplink_rules != self.config.uplink_rules {
            let port = self
                .uplink
                .as_ref()
                .and_then(|(id, _)| self.ports.get_mut(id));
            if let Some(port) = port {
                let settings = Settings::of_rules(&self.config.uplink_rules);
                port.change(settings, &mut self.plane.orders);
            }
        }
    }

    fn change_port(&mut self, vm: &str, new: &config::Port) {
        if let Some(port) = self.ports.values_mut().find(|port| port.name == vm) {
            port.change(Settings::from(new), &mut self.plane.orders);
        }
    }

    /// Gives unlisted ports the network's new rules, or removes them if the network accepts none any more.
    fn change_unlisted(&mut self, before: &config::Network) {
        let listed = |vm: &str| self.config.ports.iter().any(|port| port.vm == vm);
        let unlisted = self.ports.values().filter(|port| !listed(&port.name));
        let unlisted = unlisted.filter(|port| !matches!(port.kind, PortKind::Uplink(_)));
        let unlisted: Vec<PortId> = unlisted.map(|port| port.id).collect();
        for id in unlisted {
            if !self.config.accept {
                self.remove(id);
            } else if before.unlisted_rules != self.config.unlisted_rules {
                if let Some(port) = self.ports.get_mut(&id) {
                    let settings = Settings::of_rules(&self.config.unlisted_rules);
                    port.change(settings, &mut self.plane.orders);
                }
            }
        }
    }

    fn watch_for(&mut self, port: &config::Port) {
        if port.mode == Mode::Client {
            if let Some(folder) = port.socket.parent() {
                resources::watch_other(&mut self.watch, folder);
            }
        }
    }

    fn remove_named(&mut self, vm: &str) {
        let found = self
            .ports
            .values()
            .find(|port| port.name == vm && !matches!(port.kind, PortKind::Uplink(_)));
        if let Some(id) = found.map(|port| port.id) {
            self.remove(id);
        }
    }

    /// Removes a port. Its number is free once the data plane has detached it.
    pub(in crate::serve) fn remove(&mut self, id: PortId) {
        let Some(mut port) = self.ports.remove(&id) else {
            return;
        };
        self.end_watches(id);
        let served = port.attached() && self.lifecycle.is_up();
        port.leave(&mut self.plane.orders);
        if served {
            self.plane.orders.push(Order::Detach { port: id }, None);
            self.leaving.insert(id, port);
        }
    }

    /// Notes that the data plane has detached a removed port.
    pub(in crate::serve) fn left(&mut self, id: PortId) {
        self.leaving.remove(&id);
        self.all_left();
    }

    pub(in crate::serve) fn all_left(&mut self) {
        if self.leaving.is_empty() {
            for done in self.changing.drain(..) {
                // The client may be gone.
                let _ = done.send(());
            }
        }
    }
}
