//! The uplink of a network, whose queues outlive a data plane.

use std::os::fd::OwnedFd;

use super::Network;
use crate::serve::interface::{self, UplinkError};

impl Network {
    /// Hands the uplink over to the data plane, which gets duplicates of the descriptors.
    pub(super) fn attach_uplink(&mut self) {
        let Some((id, queues)) = &self.uplink else {
            return;
        };
        if let Some(port) = self.ports.get_mut(id) {
            let passed = self
                .config
                .uplink
                .as_ref()
                .map_or(0, interface::passed_fd_count);
            let queues = queues.iter().take(passed).map(OwnedFd::try_clone);
            port.attach_uplink(queues.collect(), &mut self.plane.orders);
        }
    }

    /// Opens again what only one data plane can use: the queues of an AF_XDP uplink.
    pub(super) fn renew_uplink(&mut self) -> Result<(), UplinkError> {
        let single_use = self
            .config
            .uplink
            .as_ref()
            .is_some_and(interface::is_single_use);
        if let (true, Some((_, queues))) = (single_use, &mut self.uplink) {
            // An interface's queue has one owner, and the kernel takes a moment to release it.
            queues.clear();
            *queues = interface::open(&self.config)?.unwrap_or_default();
        }
        Ok(())
    }
}
