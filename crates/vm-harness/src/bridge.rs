//! The baseline: a Linux bridge with a tap for each VM, in a network namespace of its own.
//!
//! The namespace separates the bridge from the host's network, and deleting it deletes every
//! device in it. Its name contains the owner's process id ([`crate::scope`]).

use std::fs::OpenOptions;
use std::time::Duration;

use crate::accel::Accel;
use crate::channel::Channel;
use crate::error::Result;
use crate::host;
use crate::scope;
use crate::vm::Link;

/// A bridge in a namespace; dropping the value deletes both.
#[derive(Debug)]
pub struct Bridge {
    namespace: String,
    vhost: bool,
}

impl Bridge {
    /// Removes the leftovers of crashed runs, then makes a bridge.
    ///
    /// The kernel's vhost-net carries the frames if KVM works and `/dev/vhost-net` can be opened; otherwise QEMU
    /// carries them.
    ///
    /// # Errors
    /// The process is not root, or `ip` is missing or fails.
    pub fn new(accel: Accel) -> Result<Self> {
        for name in scope::sweep()? {
            tracing::warn!("removed {name}, left behind by a run that crashed");
        }
        let usable = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/vhost-net")
                .is_ok()
        };
        let bridge = Self {
            namespace: scope::unique(),
            vhost: accel == Accel::Kvm && usable(),
        };
        ip(&["netns", "add", &bridge.namespace])?;
        // Spanning tree and multicast snooping are off, so that the bridge carries only the VMs' own frames.
        bridge.ip(&[
            "link",
            "add",
            "br0",
            "type",
            "bridge",
            "stp_state",
            "0",
            "mcast_snooping",
            "0",
        ])?;
        bridge.ip(&["link", "set", "br0", "up"])?;
        Ok(bridge)
    }

    /// Adds a tap for the VM `name` (at most 11 bytes) and joins it to the bridge. A VM that is
    /// booted again gets the same tap.
    ///
    /// # Errors
    /// The name is too long.
    pub fn tap(&self, name: &str) -> Result<Link> {
        let tap = format!("tap-{name}");
        if self.ip(&["link", "show", &tap]).is_err() {
            self.ip(&["tuntap", "add", &tap, "mode", "tap", "vnet_hdr"])?;
            self.ip(&["link", "set", &tap, "master", "br0", "up"])?;
        }
        Ok(Link::Tap {
            tap,
            namespace: self.namespace.clone(),
            vhost: self.vhost,
        })
    }

    /// Joins a device of the namespace to the bridge.
    ///
    /// # Errors
    /// There is no such device.
    pub fn join(&self, device: &str) -> Result<()> {
        self.ip(&["link", "set", device, "master", "br0", "up"])
    }

    /// Returns the namespace's name for `ip netns`.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the name of the part that carries the frames between a tap and its guest: vhost-net or QEMU.
    #[must_use]
    pub const fn carrier(&self) -> &'static str {
        if self.vhost {
            "the kernel's vhost-net"
        } else {
            "QEMU's own virtio-net"
        }
    }

    fn ip(&self, words: &[&str]) -> Result<()> {
        ip(&[&["-n", self.namespace.as_str()], words].concat())
    }
}

fn ip(words: &[&str]) -> Result<()> {
    let mut command = host::command("ip");
    command.args(words);
    host::run(command).map(drop)
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Err(error) = scope::delete_namespace(&self.namespace) {
            tracing::warn!("cannot remove the namespace {}: {error}", self.namespace);
        }
    }
}

impl Channel for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn description(&self) -> String {
        format!("tap and Linux bridge, frames carried by {}", self.carrier())
    }

    fn link(&self, vm: &str) -> Result<Option<Link>> {
        self.tap(vm).map(Some)
    }

    fn cpu_time(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_that_is_booted_again_gets_its_tap_back() {
        let bridge = Bridge::new(Accel::Tcg).unwrap();
        let first = bridge.tap("victim").unwrap();
        assert_eq!(bridge.tap("victim").unwrap(), first);
        assert!(bridge.tap("a-name-that-is-too-long").is_err());
    }
}
