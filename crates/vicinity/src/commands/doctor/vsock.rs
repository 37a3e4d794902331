//! Checks of the VMs' socket devices.

use std::collections::BTreeMap;
use std::path::Path;

use observe::command_line::Machine;

use super::check::Check;
use crate::client;
use crate::runtime_paths::vsock_device;
use crate::status::VsockStatus;

const NAME: &str = "socket devices";

/// Checks the socket devices of the daemon of `runtime_dir`; none if it has none. `machines` are the QEMUs of this host.
pub(super) fn checks(runtime_dir: &Path, machines: &[(u32, Machine)]) -> Vec<Check> {
    match client::get::<Vec<VsockStatus>>(runtime_dir, "/v1/vsock") {
        Ok(devices) => examine(runtime_dir, &devices, machines),
        // Another check says that no daemon answers.
        Err(_) => Vec::new(),
    }
}

fn examine(runtime_dir: &Path, devices: &[VsockStatus], machines: &[(u32, Machine)]) -> Vec<Check> {
    if devices.is_empty() {
        return Vec::new();
    }
    let qemu = |device: &VsockStatus| Qemu::find(runtime_dir, device, machines);
    let mut troubles: Vec<_> = devices
        .iter()
        .flat_map(|device| of_device(device, qemu(device)))
        .collect();
    troubles.extend(same_cid(devices, machines));
    troubles.extend(without_agent(devices));
    match troubles.is_empty() {
        true => vec![Check::ok(NAME, "each runs, or its VM is off")],
        false => troubles
            .into_iter()
            .map(|(found, remedy)| Check::warn(NAME, found, remedy))
            .collect(),
    }
}

/// What the QEMU of a device's VM has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Qemu {
    /// No QEMU of the VM is known.
    Absent,
    /// The VM's QEMU, by its process id, has no socket device of Vicinity.
    WithoutDevice(u32),
    /// This process has the device.
    WithDevice(u32, VhostVsock),
}

/// Whether a QEMU has a socket device of the host's kernel, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VhostVsock {
    Absent,
    Present,
}

impl Qemu {
    fn find(runtime_dir: &Path, device: &VsockStatus, machines: &[(u32, Machine)]) -> Self {
        let socket = vsock_device(runtime_dir, &device.vm);
        let has_socket =
            |machine: &Machine| machine.sockets.iter().any(|path| Path::new(path) == socket);
        if let Some((pid, machine)) = machines.iter().find(|(_, machine)| has_socket(machine)) {
            let other = match machine.vhost_cid {
                Some(_) => VhostVsock::Present,
                None => VhostVsock::Absent,
            };
            return Self::WithDevice(*pid, other);
        }
        let mut named = machines
            .iter()
            .filter(|(_, machine)| machine.name.as_ref() == Some(&device.vm));
        named
            .next()
            .map_or(Self::Absent, |(pid, _)| Self::WithoutDevice(*pid))
    }
}

/// Returns what is wrong with a device, each with what to do.
fn of_device(device: &VsockStatus, qemu: Qemu) -> Vec<(String, String)> {
    let vm = &device.vm;
    let why = device.reason.as_ref();
    let why = why.map(|reason| format!(" ({reason})")).unwrap_or_default();
    if !device.up {
        let found = format!("the process that serves {vm}'s does not run{why}");
        let remedy =
            "look at `journalctl --unit vicinity`; the daemon starts the process again by itself";
        return vec![(found, remedy.to_owned())];
    }
    let mut troubles = Vec::new();
    match (device.figures.attached, qemu) {
        (false, Qemu::WithoutDevice(pid)) => troubles.push((
            format!("the QEMU of {vm} (process {pid}) has no socket device"),
            format!(
                "start the VM with the options that `vicinity vsock qemu-args {vm}` prints, too; with libvirt, as \
                 `vicinity libvirt-xml {vm}` prints"
            ),
        )),
        // QEMU connects such a device once.
        (false, Qemu::WithDevice(pid, _)) => troubles.push((
            format!("{vm} has lost its device (process {pid}){why}, and QEMU does not connect it again"),
            format!("restart {vm}: shut it down, and start it again"),
        )),
        _ => {}
    }
    if let Qemu::WithDevice(pid, VhostVsock::Present) = qemu {
        troubles.push((
            format!("{vm} (process {pid}) has a device of the host's kernel, too, and Linux uses only one of them"),
            "remove vhost-vsock-pci from QEMU's options (libvirt: <vsock>)".to_owned(),
        ));
    }
    if device.figures.stuck > 0 {
        troubles.push((
            format!(
                "{} connections to {vm} were reset, because its guest had no receive buffer for a second",
                device.figures.stuck
            ),
            format!(
                "in {vm}, look whether the driver runs: `modprobe vmw_vsock_virtio_transport`, then `dmesg`; a guest \
                 that had no CPU for so long looks the same (`vicinity top`)"
            ),
        ));
    }
    troubles
}

/// Finds CIDs that a VM of the host's kernel has, too.
fn same_cid(devices: &[VsockStatus], machines: &[(u32, Machine)]) -> Vec<(String, String)> {
    let own: BTreeMap<u32, &str> = devices
        .iter()
        .map(|device| (device.cid, device.vm.as_str()))
        .collect();
    let others = machines
        .iter()
        .filter_map(|(pid, machine)| Some((pid, own.get(&machine.vhost_cid?)?, machine)));
    others
        .map(|(pid, vm, machine)| {
            let other = machine.name.as_deref().unwrap_or("another VM");
            let found = format!(
                "the CID {} is {vm}'s, and that of {other} (process {pid}) in the host's kernel: programs of the host \
                 that connect by AF_VSOCK reach {other}",
                machine.vhost_cid.unwrap_or_default()
            );
            let remedy = format!("give {vm} another `cid` in its [[vsock]] table, or {other} another guest-cid");
            (found, remedy)
        })
        .collect()
}

/// Finds VMs without an agent in a group whose other VMs have one.
fn without_agent(devices: &[VsockStatus]) -> Vec<(String, String)> {
    let attached = || devices.iter().filter(|device| device.figures.attached);
    let peer = |device: &VsockStatus| {
        let shares =
            |other: &&VsockStatus| other.groups.iter().any(|it| device.groups.contains(it));
        attached().find(|other| other.agent && shares(other))
    };
    let without = attached().filter(|device| !device.agent);
    without
        .filter_map(|device| Some((&device.vm, &peer(device)?.vm)))
        .map(|(vm, peer)| {
            let found = format!(
                "{vm} has no vicinity-agent, and {peer} in its group has one: TCP programs between them use TCP"
            );
            let remedy = format!(
                "in {vm}, install the package vicinity-guest, and `systemctl enable --now vicinity-sockets`"
            );
            (found, remedy)
        })
        .collect()
}

#[cfg(test)]
#[path = "vsock_tests.rs"]
mod tests;
