//! `vicinity vsock`.

use std::path::Path;

use clap::Subcommand;

use super::failure::Failure;
use super::output::as_json;
use super::qemu_args;
use crate::client::{self, ClientError};
use crate::name;
use crate::runtime_paths::vsock_device;
use crate::status::VsockStatus;
use crate::table::{self, Align};

#[derive(Debug, Subcommand)]
pub(crate) enum Vsock {
    /// List the VMs' socket devices, with their CIDs and connections
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print QEMU's options for a VM's socket device, in addition to those of its port
    QemuArgs {
        /// Name of the VM
        #[arg(value_parser = vm)]
        vm: String,
        /// Print a JSON array of the words
        #[arg(long)]
        json: bool,
    },
}

impl Vsock {
    /// Runs the command. Returns the text to print.
    pub(crate) fn run(&self, runtime_dir: &Path) -> Result<String, Failure> {
        match self {
            Self::List { json } => Ok(list(runtime_dir, *json)?),
            Self::QemuArgs { vm, json } => Ok(qemu_args::lines(&qemu_args(runtime_dir, vm), *json)),
        }
    }
}

/// Parses a VM's name.
fn vm(text: &str) -> Result<String, String> {
    name::check(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Returns QEMU's options. The VM's memory has to be as `vicinity qemu-args` prints it.
fn qemu_args(runtime_dir: &Path, vm: &str) -> [(&'static str, String); 2] {
    let path = qemu_args::value(&vsock_device(runtime_dir, vm));
    [
        ("-chardev", format!("socket,id=vsock,path={path}")),
        ("-device", "vhost-user-vsock-pci,chardev=vsock".to_owned()),
    ]
}

fn list(runtime_dir: &Path, json: bool) -> Result<String, ClientError> {
    let vsocks: Vec<VsockStatus> = client::get(runtime_dir, "/v1/vsock")?;
    if json {
        return Ok(as_json(&vsocks));
    }
    let rows: Vec<Vec<String>> = vsocks.iter().map(row).collect();
    let head = [
        ("VM", Align::Left),
        ("CID", Align::Right),
        ("STATE", Align::Left),
        ("CONNECTIONS", Align::Right),
        ("SENT", Align::Right),
        ("RECEIVED", Align::Right),
        ("GROUPS", Align::Left),
        ("REASON", Align::Left),
    ];
    Ok(table::format(&head, &rows))
}

fn row(vsock: &VsockStatus) -> Vec<String> {
    let state = match (vsock.up, vsock.figures.attached) {
        (false, _) => "down",
        (true, false) => "absent",
        (true, true) => "running",
    };
    vec![
        vsock.vm.clone(),
        vsock.cid.to_string(),
        state.to_owned(),
        vsock.figures.connections.to_string(),
        vsock.figures.sent_bytes.to_string(),
        vsock.figures.received_bytes.to_string(),
        vsock.groups.join(","),
        vsock.reason.clone().unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comma_in_the_path_is_doubled() {
        let [(_, chardev), _] = qemu_args(Path::new("/run/a,b"), "web");
        assert_eq!(chardev, "socket,id=vsock,path=/run/a,,b/vsock/web.sock");
    }
}
