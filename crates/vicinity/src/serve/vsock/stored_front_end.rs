//! What the supervisor keeps of a guest's front-end: QEMU connects the device once only, so the next process gets the
//! same socket, and the settings of the device.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{Shutdown, shutdown};
use rustix::time::Timespec;
use vhost::handover::Key;
use vhost::raw::ForeignFd;

use crate::processes::vsock::protocol::Order;
use crate::serve::process::handle::Orders;

/// Most settings of one device: each memory region and the rings.
const MAX_SETTINGS: usize = vhost::limits::MAX_MEMORY_SLOTS + 32;

/// Most bytes of a setting.
const MAX_SETTING: usize = 64;

/// A front-end that is connected.
#[derive(Debug)]
pub(super) struct StoredFrontEnd {
    socket: ForeignFd,
    settings: BTreeMap<Key, (Vec<u8>, Option<ForeignFd>)>,
    /// It waits for a reply. If the process ended now, it would be unknown whether it got one.
    pub(super) is_answering: bool,
}

impl StoredFrontEnd {
    pub(super) fn new(socket: ForeignFd) -> Self {
        Self {
            socket,
            settings: BTreeMap::new(),
            is_answering: false,
        }
    }

    /// Keeps a setting. Returns false if there are more than a device can have: the process is not sound.
    pub(super) fn store(
        &mut self,
        key: Key,
        payload: Vec<u8>,
        descriptor: Option<OwnedFd>,
    ) -> bool {
        let value = (payload, descriptor.map(ForeignFd::from));
        let fits = value.0.len() <= MAX_SETTING;
        self.settings.insert(key, value);
        fits && self.settings.len() <= MAX_SETTINGS
    }

    pub(super) fn forget(&mut self, key: Key) {
        self.settings.remove(&key);
    }

    pub(super) fn forget_all(&mut self, request: u32) {
        self.settings.retain(|key, _| key.0 != request);
    }

    /// Returns whether the front-end has closed its end.
    pub(super) fn has_hung_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Sends a process the settings and the socket.
    ///
    /// # Errors
    /// This process is out of descriptors.
    pub(super) fn hand_over(
        &self,
        guest: usize,
        orders: &mut Orders<Order>,
    ) -> std::io::Result<()> {
        for (key, (payload, descriptor)) in &self.settings {
            let order = Order::Setting {
                guest,
                key: *key,
                payload: payload.clone(),
            };
            let same = descriptor
                .as_ref()
                .map(|fd| fd.as_fd().try_clone_to_owned());
            orders.push(order, same.transpose()?);
        }
        let same = self.socket.as_fd().try_clone_to_owned()?;
        orders.push(Order::Attach { guest }, Some(same));
        Ok(())
    }
}

impl Drop for StoredFrontEnd {
    /// Shows the front-end that no process serves it any more.
    fn drop(&mut self) {
        // It may be gone itself.
        let _gone = shutdown(&self.socket, Shutdown::Both);
    }
}
