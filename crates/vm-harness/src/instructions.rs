//! Counts the instructions that guests execute, with a plugin of QEMU's emulator that this module builds. Their number
//! does not depend on other work of the host. Counting slows guests down. Under KVM,
//! [`crate::hardware_counter`] counts them instead.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::host;
use crate::scope::RunFolder;

/// The plugin's source.
const SOURCE: &str = include_str!("../plugin/instructions.c");

/// Counts instructions in VMs that are booted with [`Counter::qemu_args`].
#[derive(Debug)]
pub struct Counter {
    /// The plugin, and the VMs' sockets.
    run: RunFolder,
}

impl Counter {
    /// Builds the plugin.
    ///
    /// # Errors
    /// `gcc` is missing or fails.
    pub fn build() -> Result<Self> {
        let counter = Self {
            run: RunFolder::new()?,
        };
        let source = counter.run.path().join("instructions.c");
        fs::write(&source, SOURCE).context(|| format!("write {}", source.display()))?;
        let mut compile = host::command("gcc");
        compile.args([
            "-O2",
            "-Wall",
            "-shared",
            "-fPIC",
            "-fvisibility=hidden",
            "-o",
        ]);
        compile.arg(counter.plugin()).arg(&source);
        host::run(compile)?;
        Ok(counter)
    }

    fn plugin(&self) -> PathBuf {
        self.run.path().join("instructions.so")
    }

    fn socket(&self, vm: &str) -> PathBuf {
        self.run.path().join(vm)
    }

    /// Returns QEMU's options for a VM of this name.
    #[must_use]
    pub fn qemu_args(&self, vm: &str) -> [String; 2] {
        let (plugin, socket) = (self.plugin(), self.socket(vm));
        let plugin = format!("file={},socket={}", plugin.display(), socket.display());
        ["-plugin".to_owned(), plugin]
    }

    /// Returns the number of instructions that the VM of this name has run since its start.
    ///
    /// # Errors
    /// The VM does not run.
    pub fn read(&self, vm: &str) -> Result<u64> {
        let socket = self.socket(vm);
        let text = ask(&socket).context(|| format!("ask at {}", socket.display()))?;
        let number = text.trim().parse();
        number.map_err(|_| Error::unreadable("the number of instructions", &text))
    }
}

fn ask(socket: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    UnixStream::connect(socket)?.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;
    use crate::accel::Accel;
    use crate::host::ChildProcess;
    use crate::interrupt;

    /// The VM has no kernel, so it runs only the firmware, which looks for a boot device repeatedly.
    #[test]
    fn instructions_of_a_guest_are_counted() {
        let counter = Counter::build().unwrap();
        let mut qemu = host::command("qemu-system-x86_64");
        qemu.args(Accel::Tcg.qemu_args(false));
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        qemu.args(counter.qemu_args("vm"));
        qemu.stdin(Stdio::null()).stdout(Stdio::null());
        let mut qemu = ChildProcess::spawn(qemu).unwrap();
        let limit = Duration::from_secs(60);
        let counted = interrupt::poll("a million instructions", limit, || {
            assert_eq!(qemu.ended()?, None);
            let number = counter.read("vm").unwrap_or(0);
            Ok((number > 1_000_000).then_some(number))
        });
        assert!(counter.read("vm").unwrap() >= counted.unwrap());
    }
}
