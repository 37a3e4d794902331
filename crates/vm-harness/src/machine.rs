//! Describes the machine that a measurement ran on, for its report.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::host;

/// The host, its tools and the state of the source tree.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub processor: String,
    /// Processors that the run may use.
    pub cpus: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Kernel of the host, as `uname -r` prints it.
    pub kernel: String,
    /// Distribution of the host.
    pub system: String,
    /// Version of QEMU.
    pub qemu: String,
    /// Git revision of the source tree (`+` when it has changes); empty outside a source tree.
    pub revision: String,
    /// Time of the run, UTC, RFC 3339.
    pub date: String,
}

impl Machine {
    /// Describes this host.
    ///
    /// # Errors
    /// QEMU is missing.
    pub fn describe() -> Result<Self> {
        let qemu = host::run(words(&["qemu-system-x86_64", "--version"]))?;
        let qemu = qemu.lines().next().unwrap_or_default();
        Ok(Self {
            processor: field("/proc/cpuinfo", "model name", ':'),
            cpus: cpus(),
            memory_mib: memory_mib("MemTotal"),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            system: field("/etc/os-release", "PRETTY_NAME", '='),
            qemu: qemu.trim_start_matches("QEMU emulator version ").to_owned(),
            revision: revision(),
            date: output(&["date", "-u", "+%FT%TZ"]),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            cpus,
            kernel,
            ..
        } = self;
        write!(f, "{processor}, {cpus} CPUs, Linux {kernel}")
    }
}

fn words(words: &[&str]) -> std::process::Command {
    let mut command = host::command(words.first().copied().unwrap_or_default());
    command.args(words.iter().skip(1));
    command
}

/// Runs a command and returns its output; empty if the command fails.
fn output(command: &[&str]) -> String {
    host::run(words(command))
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn revision() -> String {
    let revision = output(&["git", "rev-parse", "--short=12", "HEAD"]);
    let changed = !output(&["git", "status", "--porcelain"]).is_empty();
    if changed && !revision.is_empty() {
        revision + "+"
    } else {
        revision
    }
}

/// Returns the value of the first `name<separator>value` line of a file.
fn field(path: &str, name: &str, separator: char) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(separator));
    let found = lines.find(|(key, _)| key.trim() == name);
    found.map_or_else(String::new, |(_, value)| {
        value.trim().trim_matches('"').to_owned()
    })
}

/// Processors that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the memory that is free or can be freed, MiB.
pub fn available_mib() -> u64 {
    memory_mib("MemAvailable")
}

fn memory_mib(which: &str) -> u64 {
    let text = field("/proc/meminfo", which, ':');
    let kib: Option<u64> = text.split(' ').next().and_then(|kib| kib.parse().ok());
    kib.unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_described() {
        let machine = Machine::describe().unwrap();
        assert!(machine.cpus > 0 && machine.memory_mib > 100, "{machine:?}");
        assert!((1..=machine.memory_mib).contains(&available_mib()));
        assert!(
            machine.date.ends_with('Z') && machine.date.len() == 20,
            "{machine:?}"
        );
        assert!(
            !machine.kernel.is_empty() && !machine.qemu.is_empty(),
            "{machine:?}"
        );
    }
}
