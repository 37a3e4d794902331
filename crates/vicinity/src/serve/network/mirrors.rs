//! Mirror ports: maps the configured names to port numbers, again whenever a port is added or removed.

use switch::control::Order;

use super::port::Port;
use super::{Mirrors, Network};
use crate::config::{self, Mirrored};

impl Network {
    /// Sends the data plane the mirrors that have changed.
    pub(in crate::serve) fn order_mirrors(&mut self) {
        let wanted = self.wanted_mirrors();
        let gone = self
            .mirrors
            .keys()
            .filter(|port| !wanted.contains_key(*port));
        let none = gone.map(|port| (*port, Vec::new()));
        let new = wanted
            .iter()
            .filter(|(port, to)| self.mirrors.get(*port) != Some(*to));
        let new = new.map(|(port, to)| (*port, to.clone()));
        for (port, to) in none.chain(new) {
            self.plane.orders.push(Order::Mirror { port, to }, None);
        }
        self.mirrors = wanted;
    }

    /// Sends all mirrors to a new data plane.
    pub(in crate::serve) fn mirror_again(&mut self) {
        self.mirrors.clear();
        self.order_mirrors();
    }

    fn wanted_mirrors(&self) -> Mirrors {
        let listed = self.config.ports.iter();
        let mirrors: Vec<_> = listed.filter(|port| !port.mirror.is_empty()).collect();
        let mut wanted = Mirrors::new();
        if mirrors.is_empty() {
            return wanted;
        }
        let is_mirror = |port: &&Port| mirrors.iter().any(|mirror| mirror.vm == port.name);
        for port in self.ports.values().filter(|port| !is_mirror(port)) {
            let gets = |mirror: &&&config::Port| {
                let mut mirrored = mirror.mirror.iter();
                mirrored.any(|mirrored| match mirrored {
                    Mirrored::All => true,
                    Mirrored::Port(name) => *name == port.name,
                })
            };
            let to = mirrors.iter().filter(gets).filter_map(|mirror| {
                let mut ports = self.ports.values();
                Some(ports.find(|port| port.name == mirror.vm)?.id)
            });
            let to: Vec<_> = to.collect();
            if !to.is_empty() {
                wanted.insert(port.id, to);
            }
        }
        wanted
    }

    /// Returns the names of the ports whose frames are copied to a port.
    pub(in crate::serve) fn mirrored_by(&self, port: &Port) -> Vec<String> {
        let those = self.mirrors.iter().filter(|(_, to)| to.contains(&port.id));
        let ports = those.filter_map(|(id, _)| self.ports.get(id));
        ports.map(|port| port.name.clone()).collect()
    }
}
