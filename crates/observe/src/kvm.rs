//! Halt polling: CPU time that KVM spends looking for work before it lets an idle vCPU sleep.
//!
//! The scheduler books it as use, although the guest is idle. KVM counts it for each vCPU in
//! `/sys/kernel/debug/kvm/PID-FD/vcpuN/` (the kernel's `halt-polling.rst`); root only, and
//! only where debugfs is mounted.

use std::fs;
use std::path::Path;

/// Where KVM's statistics are.
pub const STATISTICS: &str = "/sys/kernel/debug/kvm";

/// Nanoseconds the vCPUs of process `pid` have polled, below `statistics`; `None` when there
/// are none or they may not be read.
#[must_use]
pub fn polled_ns(statistics: &Path, pid: u32) -> Option<u64> {
    let owner = format!("{pid}-");
    let mut found = None;
    for vm in fs::read_dir(statistics).ok()?.flatten() {
        if !vm.file_name().to_string_lossy().starts_with(&owner) {
            continue;
        }
        for vcpu in fs::read_dir(vm.path()).ok()?.flatten() {
            if !vcpu.file_name().to_string_lossy().starts_with("vcpu") {
                continue;
            }
            for file in ["halt_poll_success_ns", "halt_poll_fail_ns"] {
                let text = fs::read_to_string(vcpu.path().join(file)).ok();
                if let Some(ns) = text.and_then(|text| text.trim().parse::<u64>().ok()) {
                    found = Some(found.unwrap_or(0_u64).saturating_add(ns));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_vcpus_of_a_vm_are_summed_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("4711-12/vcpu0/halt_poll_success_ns", "1000\n");
        write("4711-12/vcpu0/halt_poll_fail_ns", "200\n");
        write("4711-12/vcpu1/halt_poll_success_ns", "30\n");
        write("4711-12/vcpu1/guest_mode", "1\n");
        write("4711-12/halt_poll_success_ns", "9999\n");
        write("47-12/vcpu0/halt_poll_success_ns", "5\n");
        assert_eq!(polled_ns(root.path(), 4711), Some(1230));
        assert_eq!(polled_ns(root.path(), 47), Some(5));
        assert_eq!(polled_ns(root.path(), 4), None);
        assert_eq!(polled_ns(Path::new("/nonexistent"), 4711), None);
    }
}
