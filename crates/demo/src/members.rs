//! The message plane of the demo: `vicinity message serve`, and VMs that are its members.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::pair::BOOT;
use vm_harness::error::{Error, Result};
use vm_harness::host::{self, ChildProcess};
use vm_harness::interrupt;
use vm_harness::vm::{SMP_MAXCPUS_2, Vm};

/// Longest time that a command in a guest may take.
const LIMIT: Duration = Duration::from_secs(120);

/// Starts `vicinity message serve` for these VMs, in one trust group.
pub(super) fn serve(program: &Path, run: &Path, vms: &[&str]) -> Result<ChildProcess> {
    let mut command = host::command(program);
    command.arg("--runtime-dir").arg(run);
    command.args(["message", "serve"]);
    command.args(vms.iter().map(|vm| format!("{vm}=demo")));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    let mut serve = ChildProcess::spawn(command)?;
    let socket = |vm: &&str| run.join(format!("message-plane/{vm}.sock"));
    interrupt::poll("the start of `vicinity message serve`", BOOT, || {
        if let Some(status) = serve.ended()? {
            let text = format!("`vicinity message serve` ended ({status})");
            return Err(Error::Host(text));
        }
        Ok(vms.iter().all(|vm| socket(vm).exists()).then_some(()))
    })?;
    Ok(serve)
}

/// Returns QEMU's options for a member.
pub(super) fn qemu_args(program: &Path, run: &Path, vm: &str) -> Result<Vec<String>> {
    let mut command = host::command(program);
    command.arg("--runtime-dir").arg(run);
    command.args(["message", "qemu-args", vm]);
    let text = host::run(command)?;
    let words = text.split_whitespace().chain(SMP_MAXCPUS_2);
    Ok(words.map(str::to_owned).collect())
}

/// Waits until a socket is on the board of a VM.
pub(super) fn until(vm: &Vm, socket: &str) -> Result<()> {
    let wait = format!("until test -S /run/vicinity/message/{socket}; do sleep 0.1; done");
    vm.check(&wait, LIMIT).map(drop)
}
