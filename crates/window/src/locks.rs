//! Whether atomic changes of shared memory are atomic to other machines, too.
//!
//! When QEMU emulates a machine that can have one CPU only, a compare and swap becomes a load and a store: nobody in
//! that machine could be between them. But whoever shares memory with it from outside can. With room for another CPU
//! (`-smp 1,maxcpus=2`) it is atomic; and plain loads, stores and fences always are what they are.

use std::fs;
use std::sync::OnceLock;

use crate::raw;

/// What QEMU's emulation calls itself.
const EMULATION: &[u8; 12] = b"TCGTCGTCGTCG";

/// The CPUs that this machine could have: `0` for one.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Whether this side may change a word by compare and swap that another machine changes, too.
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
    fn an_emulated_machine_with_room_for_one_cpu_has_none() {
        assert!(are_effective_on(None, "0\n"), "hardware");
        assert!(are_effective_on(Some(b"KVMKVMKVM\0\0\0"), "0\n"));
        assert!(!are_effective_on(Some(EMULATION), "0\n"));
        assert!(!are_effective_on(Some(EMULATION), ""), "not known");
        assert!(are_effective_on(Some(EMULATION), "0-1\n"));
        assert!(are_effective_on(Some(EMULATION), "0,2\n"));
    }

    #[test]
    fn this_machine_says_what_it_is() {
        assert_eq!(raw::hypervisor(), raw::hypervisor());
        assert!(fs::read_to_string(POSSIBLE).unwrap().starts_with('0'));
    }
}
