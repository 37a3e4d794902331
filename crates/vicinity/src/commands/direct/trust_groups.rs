//! Commands of the direct channel, which lets the VMs of a trust group see each other's memory.

use std::path::Path;
use std::time::{Duration, Instant};

use direct::Group;
use vm_harness::interrupt;

use crate::client::{self, ApiRequest, ClientError, Method};
use crate::commands::failure::Failure;
use crate::commands::output::as_json;
use crate::commands::qemu_args::value;
use crate::commands::signals::keep_running;
use crate::name;
use crate::runtime_paths::direct_folder;
use crate::status::GroupStatus;
use crate::table::{self, Align};

/// Longest time that a guest may take to release unplugged devices.
const LEAVING: Duration = Duration::from_secs(60);

/// Parses a VM's name.
pub(crate) fn vm(text: &str) -> Result<String, String> {
    name::check(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Joins these VMs, each while it runs, until SIGINT or SIGTERM.
pub(crate) fn serve(runtime_dir: &Path, vms: &[String]) -> Result<(), Failure> {
    interrupt::install()?;
    let mut group = Group::new(&direct_folder(runtime_dir), vms)?;
    eprintln!("serving {} VMs", vms.len());
    Ok(group.serve(keep_running)?)
}

/// Returns QEMU's options that let a VM join. The VM's memory has to be as `vicinity
/// qemu-args` prints it. The options include `ports` root ports, each for a view of `memory` bytes.
pub(crate) fn qemu_args(
    runtime_dir: &Path,
    vm: &str,
    ports: u16,
    memory: u64,
) -> Vec<(&'static str, String)> {
    let monitor = value(&direct::monitor(&direct_folder(runtime_dir), vm));
    let mut options = vec![("-qmp", format!("unix:{monitor},server=on,wait=off"))];
    if ports > 0 {
        let ports = direct::root_ports(ports, memory).into_iter();
        options.extend(ports.map(|port| ("-device", port.to_string())));
    }
    options
}

/// Lists the trust groups of the daemon.
pub(crate) fn list(runtime_dir: &Path, json: bool) -> Result<String, ClientError> {
    let groups: Vec<GroupStatus> = client::get(runtime_dir, "/v1/direct")?;
    if json {
        return Ok(as_json(&groups));
    }
    let rows: Vec<Vec<String>> = groups.iter().flat_map(rows).collect();
    let head = ["GROUP", "VM", "STATE", "REASON"].map(|title| (title, Align::Left));
    Ok(table::format(&head, &rows))
}

fn rows(group: &GroupStatus) -> Vec<Vec<String>> {
    let row = |vm: &str, state: &str, reason: Option<&String>| {
        let reason = reason.cloned().unwrap_or_default();
        vec![group.name.clone(), vm.to_owned(), state.to_owned(), reason]
    };
    if !group.up {
        return vec![row("-", "down", group.reason.as_ref())];
    }
    let members = group.members.iter();
    members
        .map(|member| row(&member.vm, &member.state, member.reason.as_ref()))
        .collect()
}

/// Lets a VM join again.
pub(crate) fn join(runtime_dir: &Path, vm: &str) -> Result<(), ClientError> {
    request(runtime_dir, vm, "join").map(drop)
}

/// Has a VM leave its group, and waits until the VM has released all devices of the group.
pub(crate) fn leave(runtime_dir: &Path, vm: &str) -> Result<(), Failure> {
    let mut groups = request(runtime_dir, vm, "leave")?;
    let end = Instant::now() + LEAVING;
    loop {
        let mut members = groups.iter().flat_map(|group| &group.members);
        let member = members.find(|member| member.vm == vm);
        match member.map(|member| member.state.as_str()) {
            Some("out" | "absent") => return Ok(()),
            _ if Instant::now() >= end => {
                let seconds = LEAVING.as_secs();
                return Err(Failure::Usage(format!(
                    "the guest of {vm} has not released its devices within {seconds} s; a program in the guest \
                        may be using them. The guest may still release them: see `vicinity direct list`. Restart \
                        the VM if this persists"
                )));
            }
            _ => std::thread::sleep(Duration::from_millis(100)),
        }
        groups = client::get(runtime_dir, "/v1/direct")?;
    }
}

fn request(runtime_dir: &Path, vm: &str, what: &str) -> Result<Vec<GroupStatus>, ClientError> {
    let path = format!("/v1/direct/{vm}/{what}");
    client::request(runtime_dir, ApiRequest::without_body(Method::POST, &path))
        .map(|(_, groups)| groups)
}
