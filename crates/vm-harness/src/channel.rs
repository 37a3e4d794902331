//! What every channel between VMs offers, so that an experiment can be run over each of them.

use std::path::Path;
use std::time::Duration;

use crate::accel::Accel;
use crate::error::Result;
use crate::vm::{Link, Nic, Vm};

/// A way between VMs. It lives as long as the value; drop the VMs first.
pub trait Channel: std::fmt::Debug {
    /// Its name, as [`channels::open`](crate::channels::open) knows it.
    fn name(&self) -> &'static str;

    /// One line for a report: what carries the frames.
    fn description(&self) -> String;

    /// The end of the VM `vm`; none where the VM gets its device while it runs.
    ///
    /// # Errors
    /// The VM is unknown to the channel, or the host refuses.
    fn link(&self, vm: &str) -> Result<Option<Link>>;

    /// QEMU's options for a VM, beside its NIC's.
    ///
    /// # Errors
    /// They cannot be found out.
    fn qemu_args(&self, _vm: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// What is left to do when the VMs, which are numbered from one, are up, with guests of the kernel
    /// `release`.
    ///
    /// # Errors
    /// A VM does not join.
    fn join(&mut self, _vms: &[Vm], _network: u8, _release: &str) -> Result<()> {
        Ok(())
    }

    /// CPU time the channel's own processes have used. Zero when it has none.
    ///
    /// # Errors
    /// A process is gone.
    fn cpu_time(&self) -> Result<Duration>;

    /// The channel's own process, if it has one.
    fn process(&self) -> Option<u32> {
        None
    }
}

/// What [`channels::open`](crate::channels::open) needs to know.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Names of the VMs that will be joined.
    pub vms: &'a [&'a str],
    /// How the VMs will be run.
    pub accel: Accel,
    /// The `vicinity` program.
    pub vicinity: &'a Path,
    /// Folder of what is built for guests and kept.
    pub cache: &'a Path,
    /// Folder for logs.
    pub logs: &'a Path,
}

/// A NIC on a channel, where that needs one. Its MAC address and IPv4 address follow from two numbers: that of the
/// network (1 to 254, one for each channel) and that of the VM on it.
///
/// # Errors
/// Those of [`Channel::link`].
pub fn nic(channel: &dyn Channel, network: u8, vm: &str, number: u8) -> Result<Option<Nic>> {
    Ok(channel.link(vm)?.map(|link| Nic {
        link,
        mac: mac(network, number),
        address: Some(format!("{}/24", address(network, number))),
        properties: Vec::new(),
    }))
}

/// IPv4 address of a VM on a network of the lab.
#[must_use]
pub fn address(network: u8, number: u8) -> String {
    format!("10.99.{network}.{number}")
}

/// MAC address of a VM on a network of the lab.
#[must_use]
pub fn mac(network: u8, number: u8) -> String {
    format!("52:54:00:00:{network:02x}:{number:02x}")
}
