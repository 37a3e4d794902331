//! The interface that every channel between VMs has, so that an experiment can run over each of them.

use std::path::Path;
use std::time::Duration;

use crate::accel::Accel;
use crate::error::Result;
use crate::vm::{Link, Nic, Vm};

/// A channel between VMs. It exists as long as the value; drop the VMs first.
pub trait Channel: std::fmt::Debug {
    /// Returns the name that [`channels::open`](crate::channels::open) accepts.
    fn name(&self) -> &'static str;

    /// Returns one line for a report, which names what carries the frames.
    fn description(&self) -> String;

    /// Returns the NIC's back-end for the VM `vm`; `None` if the channel plugs the device into the running VM.
    ///
    /// # Errors
    /// The channel was opened without this VM, or the host refuses the back-end.
    fn link(&self, vm: &str) -> Result<Option<Link>>;

    /// Returns QEMU's options for a VM, beside those of its NIC.
    ///
    /// # Errors
    /// The program that prints the options fails.
    fn qemu_args(&self, _vm: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Connects the running VMs, which are numbered from one and whose guests have the kernel
    /// `release`, if the channel needs that.
    ///
    /// # Errors
    /// A VM does not join.
    fn join(&mut self, _vms: &[Vm], _network: u8, _release: &str) -> Result<()> {
        Ok(())
    }

    /// Returns the CPU time that the channel's own processes have used; zero if it has none.
    ///
    /// # Errors
    /// A process has ended.
    fn cpu_time(&self) -> Result<Duration>;

    /// Returns the runtime folder of the channel's daemon, if it has one.
    fn runtime_dir(&self) -> Option<&Path> {
        None
    }

    /// Returns the channel's own process, if it has one.
    fn process(&self) -> Option<u32> {
        None
    }
}

/// Arguments of [`channels::open`](crate::channels::open).
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Names of the VMs that will be joined.
    pub vms: &'a [&'a str],
    /// How the VMs will be run.
    pub accel: Accel,
    /// The `vicinity` program.
    pub vicinity: &'a Path,
    /// Cache folder of the files that are built for guests.
    pub cache: &'a Path,
    /// Folder for logs.
    pub logs: &'a Path,
}

/// Returns a NIC on a channel, if the channel needs one. Its MAC address and IPv4 address follow from two numbers:
/// that of the network (1 to 254, one for each channel) and that of the VM on this network.
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

/// Returns the IPv4 address of a VM on one of the harness's networks.
#[must_use]
pub fn address(network: u8, number: u8) -> String {
    format!("10.99.{network}.{number}")
}

/// Returns the MAC address of a VM on one of the harness's networks.
#[must_use]
pub fn mac(network: u8, number: u8) -> String {
    format!("52:54:00:00:{network:02x}:{number:02x}")
}
