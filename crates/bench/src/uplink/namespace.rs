//! The network namespaces that are the hosts of the benchmark.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Command;

use vm_harness::error::{Error, Result};
use vm_harness::host;
use vm_harness::scope;

/// Name of the interface of each host, which its daemon and programs serve, and of TCP.
pub(super) const INTERFACE: &str = "mx";

/// A host. All of its programs run on one CPU of their own, as on two machines. Without the pinning, the scheduler
/// would put the programs that wait on one CPU, and those that have work on the other.
#[derive(Clone, Copy)]
pub(super) struct Host {
    pub(super) name: &'static str,
    /// Address of the host, from a range for documentation (RFC 5737).
    pub(super) address: &'static str,
    pub(super) cpu: u32,
}

pub(super) const HOSTS: [Host; 2] = [
    Host {
        name: "alpha",
        address: "192.0.2.1",
        cpu: 0,
    },
    Host {
        name: "beta",
        address: "192.0.2.2",
        cpu: 1,
    },
];

impl Host {
    /// Returns the command of a program that this taskset(1) keeps on the CPU of the host.
    fn pinned(self, mut taskset: Command, program: &Path) -> Command {
        taskset.args(["-c", &self.cpu.to_string()]).arg(program);
        taskset
    }
}

/// The network namespace of a host.
pub(super) struct Namespace {
    pub(super) name: String,
    pub(super) host: Host,
}

impl Namespace {
    pub(super) fn new(host: Host) -> Result<Self> {
        let name = scope::unique();
        ip(&["netns", "add", &name])?;
        Ok(Self { name, host })
    }

    pub(super) fn address(&self) -> Result<Ipv4Addr> {
        let address = self.host.address;
        let parsed = address.parse();
        parsed.map_err(|_| Error::unreadable("an address of the benchmark", address))
    }

    /// Returns the command of a service of the host inside its namespace.
    pub(super) fn service(&self, program: &Path) -> Command {
        let mut command = self.inside(host::service("taskset"));
        command.arg(program);
        command
    }

    /// Returns a command of the host inside its namespace.
    pub(super) fn command(&self, words: &[&str]) -> Command {
        let mut command = self.inside(host::command("taskset"));
        command.args(words);
        command
    }

    fn inside(&self, taskset: Command) -> Command {
        let mut command = self.host.pinned(taskset, Path::new("ip"));
        command.args(["netns", "exec", &self.name]);
        command
    }

    /// Gives the interface its address, and brings the interface up.
    pub(super) fn set_up(&self) -> Result<()> {
        let address = format!("{}/24", self.host.address);
        let name = &self.name;
        ip(&["-n", name, "address", "add", &address, "dev", INTERFACE])?;
        ip(&["-n", name, "link", "set", INTERFACE, "up"])
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = scope::delete_namespace(&self.name) {
            tracing::warn!("cannot delete the namespace {}: {error}", self.name);
        }
    }
}

pub(super) fn ip(words: &[&str]) -> Result<()> {
    let mut command = host::command("ip");
    command.args(words);
    host::run(command).map(drop)
}
