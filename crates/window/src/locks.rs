//! Whether atomic read-modify-write operations on shared memory are atomic towards other machines.
//!
//! When QEMU emulates (TCG) a machine that can have one CPU only, it translates compare and swap
//! into a load and a store: inside that machine nothing can run between them. A program outside
//! that shares the memory can. With room for another CPU (`-smp 1,maxcpus=2`) the operation is
//! atomic. Plain loads, stores and fences always work across machines.

use std::fs;
use std::sync::OnceLock;

use crate::raw::{self, EMULATION};

/// The possible CPUs of this machine: `0` for one.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Returns whether this side may change a word by compare and swap that another machine changes,
/// too.
#[must_use]
pub fn are_effective() -> bool {
    static EFFECTIVE: OnceLock<bool> = OnceLock::new();
    *EFFECTIVE.get_or_init(|| {
        let possible = fs::read_to_string(POSSIBLE).unwrap_or_default();
        are_effective_on(raw::hypervisor().as_ref(), &possible)
    })
}

fn are_effective_on(hypervisor: Option<&[u8; 12]>, possible: &str) -> bool {
    hypervisor != Some(EMULATION) || possible.contains(['-', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_not_effective_on_an_emulated_machine_with_one_possible_cpu() {
        assert!(are_effective_on(None, "0\n"), "hardware");
        assert!(are_effective_on(Some(b"KVMKVMKVM\0\0\0"), "0\n"));
        assert!(!are_effective_on(Some(EMULATION), "0\n"));
        assert!(
            !are_effective_on(Some(EMULATION), ""),
            "unknown number of CPUs"
        );
        assert!(are_effective_on(Some(EMULATION), "0-1\n"));
        assert!(are_effective_on(Some(EMULATION), "0,2\n"));
    }

    #[test]
    fn this_machine_reports_hypervisor_and_cpus() {
        assert_eq!(raw::hypervisor(), raw::hypervisor());
        assert!(fs::read_to_string(POSSIBLE).unwrap().starts_with('0'));
    }
}
