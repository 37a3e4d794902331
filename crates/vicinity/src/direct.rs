//! The direct channel: VMs of a trust group that see each other's memory.

use std::path::{Path, PathBuf};

use direct::Group;
use lab::interrupt;

use crate::failure::Failure;
use crate::name;
use crate::plane::go_on;

/// Where VMs' monitors and the window's sockets are, below the runtime directory.
fn folder(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("direct")
}

/// A VM's name.
pub(crate) fn vm(text: &str) -> Result<String, String> {
    name::check(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// Join these VMs, whenever they are there, until SIGINT or SIGTERM.
pub(crate) fn serve(runtime_dir: &Path, vms: &[String]) -> Result<(), Failure> {
    interrupt::install()?;
    let mut group = Group::new(&folder(runtime_dir), vms)?;
    eprintln!("serving {} VMs", vms.len());
    Ok(group.serve(go_on)?)
}

/// QEMU's option that lets a VM join; its memory has to be as `vicinity qemu-args` prints it.
pub(crate) fn qemu_args(runtime_dir: &Path, vm: &str) -> String {
    let monitor = direct::monitor(&folder(runtime_dir), vm);
    format!("-qmp unix:{},server=on,wait=off\n", monitor.display())
}
