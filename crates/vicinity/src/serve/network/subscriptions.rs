//! Subscriptions to the frames of ports. A subscription belongs to a port's number in its network. It outlives the
//! VM's connections and the data plane, and ends with its subscriber or with the port.

use std::os::fd::{AsFd, OwnedFd};

use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use switch::control::{Order, PortId};
use switch::limits::MAX_CAPTURES;

use super::Network;
use super::watch::{Watch, WatchError, Watched};
use crate::name;

/// Bytes that may wait for a subscriber, if the system allows as much: some hundredths of a second of a busy
/// port.
const SOCKET_BUFFER_BYTES: usize = 8 << 20;

impl Network {
    /// Subscribes to a port's frames, with at most `bytes` of each.
    pub(in crate::serve) fn watch_port(
        &mut self,
        vm: &str,
        bytes: u32,
    ) -> Result<Watched, WatchError> {
        let found = self.ports.values().find(|port| port.name == vm);
        let port = found.map(|port| port.id).ok_or_else(|| {
            let known = self.ports.values().map(|port| port.name.as_str());
            WatchError::NoPort {
                network: self.config.name.clone(),
                vm: vm.to_owned(),
                hint: name::hint(vm, known),
            }
        })?;
        let of_port = || self.watches.iter().filter(|watch| watch.port == port);
        if of_port().count() >= MAX_CAPTURES {
            return Err(WatchError::TooMany { vm: vm.to_owned() });
        }
        let numbers = 0..=u32::MAX;
        let mut free = numbers.filter(|number| of_port().all(|watch| watch.number != *number));
        let number = free.next().unwrap_or_default();
        let (ours, theirs) = pair().map_err(WatchError::Socket)?;
        self.watches.push(Watch {
            port,
            number,
            bytes,
            socket: theirs,
        });
        self.order_watch(self.watches.len() - 1);
        Ok(Watched {
            port,
            number,
            socket: ours,
        })
    }

    /// Ends a subscription.
    pub(in crate::serve) fn unwatch(&mut self, port: PortId, number: u32) {
        let before = self.watches.len();
        self.watches
            .retain(|watch| (watch.port, watch.number) != (port, number));
        if self.watches.len() < before && self.lifecycle.is_up() {
            let capture = number;
            self.plane
                .orders
                .push(Order::EndCapture { port, capture }, None);
        }
    }

    /// Ends the subscriptions to a port that is removed.
    pub(in crate::serve) fn end_watches(&mut self, port: PortId) {
        let numbers = self.watches.iter().filter(|watch| watch.port == port);
        for number in numbers.map(|watch| watch.number).collect::<Vec<_>>() {
            self.unwatch(port, number);
        }
    }

    /// Sends all subscriptions to a new data plane.
    pub(in crate::serve) fn watch_again(&mut self) {
        (0..self.watches.len()).for_each(|watch| self.order_watch(watch));
    }

    fn order_watch(&mut self, watch: usize) {
        let Some(watch) = self.watches.get(watch).filter(|_| self.lifecycle.is_up()) else {
            return;
        };
        let order = Order::Capture {
            port: watch.port,
            capture: watch.number,
            most: watch.bytes,
        };
        match watch.socket.try_clone() {
            Ok(socket) => self.plane.orders.push(order, Some(socket)),
            Err(error) => {
                tracing::error!(%error, "cannot continue a capture in the new data plane");
            }
        }
    }
}

/// Returns the subscriber's and the data plane's end of a socket pair.
fn pair() -> Result<(OwnedFd, OwnedFd), rustix::io::Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    // Without CAP_NET_ADMIN, the limit for unprivileged processes applies.
    if sockopt::set_socket_send_buffer_size_force(theirs.as_fd(), SOCKET_BUFFER_BYTES).is_err() {
        sockopt::set_socket_send_buffer_size(theirs.as_fd(), SOCKET_BUFFER_BYTES)?;
    }
    Ok((ours, theirs))
}
