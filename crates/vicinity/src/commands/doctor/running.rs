//! Checks of what runs now: a daemon, its networks and the VMs on them.
//!
//! This module asks the daemon over its control socket, and recognizes QEMU processes by their command lines.
//! The finding of a mistake names the VM, and says what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use observe::command_line::{Kind as Process, Machine, kind};
use observe::proc::Proc;

use super::check::{Check, Purpose};
use super::gateways;
use super::links::{self, Link};
use super::pages::{self, Pages};
use super::reach;
use super::sockets::Listening;
use super::stuck;
use super::vsock;
use crate::client::{self, ClientError};
use crate::live::{Live, Problem, ProblemKind};
use crate::runtime_paths::CONTROL_SOCKET;
use crate::status::{Kind, NetworkStatus, PortStatus, State};

/// Virtio features without which a VM gets no large frames and no partial checksums (virtio 1.2,
/// 5.1.3): `GUEST_CSUM`, and one of `GUEST_TSO4` and `GUEST_TSO6`.
const GUEST_CSUM: u64 = 1 << 1;
const GUEST_TSO: u64 = 1 << 7 | 1 << 8;

/// The state that the checks examine.
#[derive(Debug, Default)]
struct Snapshot {
    networks: Vec<NetworkStatus>,
    ports: Vec<PortStatus>,
    /// VMs on this host, with their QEMUs' process ids.
    machines: Vec<(u32, Machine)>,
    /// The interfaces that the uplinks use.
    links: BTreeMap<String, Link>,
    /// The problems that hold at `at`, in seconds since 1970.
    problems: Vec<Problem>,
    at: f64,
}

/// Checks what the daemon of `runtime_dir` serves; `live` has its problems.
pub(super) fn checks(runtime_dir: &Path, live: Option<&Live>) -> Vec<Check> {
    let networks = client::get::<Vec<NetworkStatus>>(runtime_dir, "/v1/networks");
    let ports = client::get::<Vec<PortStatus>>(runtime_dir, "/v1/ports");
    let checks = match (networks, ports) {
        (Ok(networks), Ok(ports)) => {
            let sockets = ports.iter().filter_map(|port| port.socket.as_deref());
            let mut more = reach::checks(sockets.map(Path::new));
            more.extend(Listening::now().checks(&networks, &ports));
            let links = links::of(networks.iter().filter_map(|it| it.uplink.as_deref()));
            let machines = machines();
            more.extend(vsock::checks(runtime_dir, &machines));
            let snapshot = Snapshot {
                networks,
                ports,
                machines,
                links,
                problems: live.map(|live| live.problems.clone()).unwrap_or_default(),
                at: live.map_or(0.0, |live| live.at),
            };
            let mut checks = snapshot.checks();
            checks.extend(snapshot.pages());
            checks.extend(gateways::of_members(runtime_dir));
            checks.extend(more);
            checks
        }
        (Err(error), _) | (_, Err(error)) => vec![no_daemon(runtime_dir, &error)],
    };
    let checks = checks.into_iter();
    checks
        .map(|check| check.needed_for(Purpose::Running))
        .collect()
}

fn no_daemon(runtime_dir: &Path, error: &ClientError) -> Check {
    let name = "daemon";
    let socket = runtime_dir.join(CONTROL_SOCKET);
    match error {
        ClientError::NoDaemon { .. } if socket.exists() => Check::warn(
            name,
            format!("{} remains from a daemon that died", socket.display()),
            "restart the daemon, which replaces the socket: `systemctl restart vicinity`, or `vicinity serve`",
        ),
        ClientError::NoDaemon { .. } => Check::ok(
            name,
            format!(
                "no daemon serves {}, so no VM is checked",
                runtime_dir.display()
            ),
        ),
        other => Check::warn(name, format!("{other}"), "correct the cause in the message"),
    }
}

/// Returns the QEMU processes of this host.
fn machines() -> Vec<(u32, Machine)> {
    let proc = Proc::default();
    let machine = |pid| match kind(&proc.command_line(pid)?)? {
        Process::Vm(machine) => Some((pid, machine)),
        _ => None,
    };
    proc.processes().into_iter().filter_map(machine).collect()
}

impl Snapshot {
    fn checks(&self) -> Vec<Check> {
        let mut checks = vec![Check::ok(
            "daemon",
            format!(
                "serves {} network(s) with {} port(s)",
                self.networks.len(),
                self.ports.len()
            ),
        )];
        let uplinks = match self.networks.iter().any(|it| it.uplink.is_some()) {
            true => "each leads to a bridge, a network or this host",
            false => "no network has an uplink: VMs reach only each other",
        };
        for (name, well, troubles) in [
            (
                "ports",
                "no port is in quarantine or down",
                self.told(&[ProblemKind::Quarantined, ProblemKind::PortDown]),
            ),
            (
                "shared memory",
                "Vicinity can map every VM's memory",
                self.private_memory(),
            ),
            ("encrypted memory", "no VM has it", self.encrypted_memory()),
            (
                "addresses",
                "no two VMs have the same address",
                self.same_address(),
            ),
            ("offloads", "every VM accepts large frames", self.offloads()),
            ("MTU", "no VM's frames are too long", self.mtu()),
            ("uplinks", uplinks, self.uplinks()),
        ] {
            match troubles.is_empty() {
                true => checks.push(Check::ok(name, well)),
                false => checks.extend(
                    troubles
                        .into_iter()
                        .map(|(found, remedy)| Check::warn(name, found, remedy)),
                ),
            }
        }
        checks
    }

    fn vms(&self) -> impl Iterator<Item = &PortStatus> {
        self.ports.iter().filter(|port| port.kind == Kind::Vm)
    }

    /// Returns the QEMU processes on the daemon's ports: port, process, machine and address.
    fn attached(&self) -> impl Iterator<Item = (&PortStatus, u32, &Machine, Option<&str>)> {
        self.machines.iter().flat_map(move |(pid, machine)| {
            machine.nics.iter().filter_map(move |nic| {
                let port = self
                    .vms()
                    .find(|port| port.socket.as_deref() == Some(&nic.socket))?;
                Some((port, *pid, machine, nic.mac.as_deref()))
            })
        })
    }

    /// Says of each VM with a port how much of its memory is in huge pages.
    fn pages(&self) -> Vec<Check> {
        let vms: BTreeMap<u32, &str> = self
            .attached()
            .map(|(port, process, ..)| (process, port.vm.as_str()))
            .collect();
        vms.into_iter()
            .map(|(process, vm)| pages::check(vm, process, Pages::of(process)))
            .collect()
    }

    fn problems(&self, kinds: &[ProblemKind]) -> impl Iterator<Item = &Problem> {
        self.problems
            .iter()
            .filter(move |problem| kinds.contains(&problem.kind))
    }

    /// Returns the problems of these kinds, and what helps.
    fn told(&self, kinds: &[ProblemKind]) -> Vec<(String, String)> {
        let problems = self.problems(kinds);
        problems
            .map(|problem| stuck::found(problem, self.at))
            .collect()
    }

    /// Finds VMs whose memory is not shared, also those whose drivers have not started yet.
    fn private_memory(&self) -> Vec<(String, String)> {
        let kinds = [ProblemKind::PrivateMemory];
        let private = self.attached().filter(|(port, _, machine, _)| {
            let mut told = self.problems(&kinds);
            !machine.shared && told.all(|problem| problem.vm.as_ref() != Some(&port.vm))
        });
        let early = private
            .map(|(port, pid, _, _)| {
                let found = format!(
                    "the memory of {} is private to its QEMU (process {pid}), so the switch cannot forward its \
                        frames",
                    port.vm
                );
                let remedy = format!(
                    "start the VM with memory that has share=on, as `vicinity qemu-args {vm}` prints; with \
                        libvirt, as `vicinity libvirt-xml {vm}` prints",
                    vm = port.vm
                );
                (found, remedy)
            });
        self.told(&kinds).into_iter().chain(early).collect()
    }

    fn encrypted_memory(&self) -> Vec<(String, String)> {
        let encrypted = self.attached().filter(|(.., machine, _)| machine.encrypted);
        encrypted
            .map(|(port, pid, ..)| {
                let found = format!(
                    "{}'s is encrypted (process {pid}, SEV or TDX): its guest copies each frame into a bounce buffer",
                    port.vm
                );
                let remedy = "none is needed for its NIC; it cannot join a group of the direct channel, and the \
                              message plane does not support it";
                (found, remedy.to_owned())
            })
            .collect()
    }

    /// Finds addresses that the switch has seen several VMs use, or that several VMs are configured with.
    fn same_address(&self) -> Vec<(String, String)> {
        let mut owners: BTreeMap<(&str, String), BTreeSet<&str>> = BTreeMap::new();
        for (port, _, _, mac) in self.attached() {
            if let Some(mac) = mac {
                let key = (port.network.as_str(), mac.to_ascii_lowercase());
                owners.entry(key).or_default().insert(&port.vm);
            }
        }
        let kinds = [ProblemKind::DuplicateAddress];
        let is_told = |vm: &&str| {
            self.problems(&kinds)
                .any(|it| it.vm.as_deref() == Some(*vm))
        };
        let several = owners
            .into_iter()
            .filter(|(_, vms)| vms.len() > 1 && !vms.iter().any(is_told));
        let configured = several.map(|((network, mac), vms)| {
            let vms: Vec<_> = vms.into_iter().collect();
            let found = format!("{mac} on {network} is the address of {}", vms.join(" and "));
            let remedy =
                "give each VM its own address, as `vicinity qemu-args` and `libvirt-xml` do";
            (found, remedy.to_owned())
        });
        self.told(&kinds).into_iter().chain(configured).collect()
    }

    fn offloads(&self) -> Vec<(String, String)> {
        let running = self.vms().filter(|port| port.state == State::Running);
        let without = running
            .filter(|port| port.features & GUEST_CSUM == 0 || port.features & GUEST_TSO == 0);
        without
            .map(|port| {
                let found = format!(
                    "{} does not accept large frames, so the switch segments frames to it and computes their \
                        checksums in software",
                    port.vm
                );
                let remedy = "remove csum=off, guest_csum=off and guest_tso4=off from its NIC (libvirt: \
                    <driver><guest/>), and enable these offloads in the guest's driver";
                (found, remedy.to_owned())
            })
            .collect()
    }

    fn mtu(&self) -> Vec<(String, String)> {
        let mut troubles = Vec::new();
        for network in &self.networks {
            let announced = |port: &&PortStatus| port.network == network.name && port.mtu > 0;
            let vms: Vec<_> = self.vms().filter(announced).collect();
            let link = network.uplink.as_ref().and_then(|tap| self.links.get(tap));
            if let (Some(link), Some(tap)) = (link, &network.uplink) {
                let long = vms.iter().filter(|port| u32::from(port.mtu) > link.mtu);
                troubles.extend(long.map(|port| {
                    let found = format!(
                        "{} sends up to {} bytes, but its uplink {tap} accepts only {}",
                        port.vm, port.mtu, link.mtu
                    );
                    let remedy = format!(
                        "run `ip link set {tap} mtu {}`, also for the bridge's other members; or remove \
                            host_mtu={} from the VM's NIC",
                        port.mtu, port.mtu
                    );
                    (found, remedy)
                }));
            }
            let mut sizes: Vec<_> = vms.iter().map(|port| (port.mtu, &port.vm)).collect();
            sizes.sort();
            if let (Some((low, small)), Some((high, large))) = (sizes.first(), sizes.last()) {
                if low < high {
                    let found = format!(
                        "{small} has the MTU {low}, and {large} on the same network has \
                        {high}"
                    );
                    let remedy = "give all VMs of a network the same host_mtu, or set the same MTU in the guests";
                    troubles.push((found, remedy.to_owned()));
                }
            }
        }
        troubles
    }

    fn uplinks(&self) -> Vec<(String, String)> {
        let mut troubles = Vec::new();
        for network in &self.networks {
            let Some(name) = &network.uplink else {
                continue;
            };
            match self.links.get(name) {
                Some(link) if !link.leads_somewhere() => troubles.push((
                    format!(
                        "{name} of {} is not on a bridge and has no address, so no host is behind it",
                        network.name
                    ),
                    format!("run `ip link set {name} master BRIDGE`, with a bridge that has this host's NIC"),
                )),
                Some(link) if !link.up => troubles.push((
                    format!("{name} of {} is down", network.name),
                    format!("run `ip link set {name} up`"),
                )),
                _ => {}
            }
        }
        troubles
    }
}

#[cfg(test)]
#[path = "running_tests.rs"]
mod tests;
