//! What a report says about the machine and the programs it was made with.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host;

/// The machine a benchmark ran on. Text that the system does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// CPUs that programs may use.
    pub cpus: usize,
    /// Memory in MB.
    pub memory_mb: u64,
    /// The running kernel's release.
    pub kernel: String,
    /// The distribution's name and version.
    pub system: String,
}

impl Machine {
    /// Asks the system.
    pub(super) fn here() -> Self {
        let memory = value("/proc/meminfo", "MemTotal", ':');
        let memory = memory.trim_end_matches("kB").trim().parse::<u64>();
        Self {
            cpu: value("/proc/cpuinfo", "model name", ':'),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mb: memory.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: value("/etc/os-release", "PRETTY_NAME", '='),
        }
    }
}

/// The source revision of the folder we run in, with `-dirty` when files differ from it; `None`
/// outside a checkout.
pub(super) fn git_revision() -> Option<String> {
    let mut command = host::command("git");
    command.args(["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]);
    host::run(command).ok().map(|text| text.trim().to_owned())
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The first value of `key` in a file of `key SEPARATOR value` lines, without quotes.
fn value(path: &str, key: &str, separator: char) -> String {
    let text = read(path);
    let pairs = text.lines().filter_map(|line| line.split_once(separator));
    let found = pairs.into_iter().find(|(name, _)| name.trim() == key);
    found.map_or_else(String::new, |(_, value)| {
        value.trim().trim_matches('"').to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_its_kernel_and_memory() {
        let machine = Machine::here();
        assert!(!machine.kernel.is_empty());
        assert!(machine.memory_mb > 0);
    }
}
