//! What a new configuration changes in a running network.

use std::os::fd::OwnedFd;

use super::resources::{self, NetworkResourcesError, OpenedPort};
use crate::config;
use crate::serve::interface;

/// The difference between two configurations of a network, and what it needs from the system.
#[derive(Debug)]
pub(in crate::serve) struct Change {
    /// The network as it shall be.
    pub(in crate::serve) config: config::Network,
    /// Listed ports that are removed.
    pub(in crate::serve) removed: Vec<String>,
    /// Ports of which only the address, the rules or the owner change: their front-ends stay connected.
    pub(in crate::serve) changed: Vec<config::Port>,
    /// Listed ports that are added.
    pub(in crate::serve) added: Vec<OpenedPort>,
    /// If the uplink changes: the queues of the new one, or `None` if there is none any more.
    pub(in crate::serve) uplink: Option<Option<Vec<OwnedFd>>>,
    /// The data plane must start again, because the number of workers changes.
    pub(in crate::serve) restart: bool,
}

impl Change {
    /// Takes from the system what the change from `old` to `new` needs. Returns `None` if nothing changes.
    pub(in crate::serve) fn prepare(
        old: &config::Network,
        new: &config::Network,
    ) -> Result<Option<Self>, NetworkResourcesError> {
        if old == new {
            return Ok(None);
        }
        let stays = |port: &config::Port| old.ports.iter().any(|old| same_connection(old, port));
        let removed = old.ports.iter().filter(|old| {
            let mut new = new.ports.iter();
            !new.any(|new| same_connection(old, new))
        });
        let changed = new
            .ports
            .iter()
            .filter(|port| stays(port) && !old.ports.contains(port));
        let added = new.ports.iter().filter(|port| !stays(port));
        let uplink = match old.uplink == new.uplink {
            true => None,
            false => Some(interface::open(new)?),
        };
        Ok(Some(Self {
            removed: removed.map(|port| port.vm.clone()).collect(),
            changed: changed.cloned().collect(),
            added: added.map(resources::open).collect::<Result<_, _>>()?,
            uplink,
            restart: old.workers != new.workers,
            config: new.clone(),
        }))
    }
}

/// Returns whether the two have the same front-end: the same VM, socket and mode.
fn same_connection(a: &config::Port, b: &config::Port) -> bool {
    a.vm == b.vm && a.socket == b.socket && a.mode == b.mode
}
