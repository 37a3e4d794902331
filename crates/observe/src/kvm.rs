//! Halt polling: CPU time for which KVM polls for work before it lets an idle vCPU sleep.
//!
//! The scheduler counts this time as use, although the guest is idle. KVM counts it too, for each VM as
//! the sum of its vCPUs, in `/sys/kernel/debug/kvm/PID-FD/` (`kvm_create_vm_debugfs()` in the kernel's
//! `virt/kvm/kvm_main.c`). The folders `vcpuN` there have other files. Only root may read these files, and only
//! where debugfs is mounted.

use std::fs;
use std::path::Path;

/// The folder with KVM's statistics.
pub const STATISTICS: &str = "/sys/kernel/debug/kvm";

/// The files with the nanoseconds of polls that found work, and of those that did not.
const POLLED: [&str; 2] = ["halt_poll_success_ns", "halt_poll_fail_ns"];

/// Returns the nanoseconds for which the vCPUs of process `pid` have polled, from the folder
/// `statistics`. Returns `None` if the process has no VM, or if this program may not read the
/// statistics.
#[must_use]
pub fn polled_ns(statistics: &Path, pid: u32) -> Option<u64> {
    let owner = format!("{pid}-");
    let folders = fs::read_dir(statistics).ok()?.flatten();
    let of_process = folders.filter(|it| it.file_name().to_string_lossy().starts_with(&owner));
    let files = of_process.flat_map(|vm| POLLED.map(|file| vm.path().join(file)));
    let numbers = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    numbers.reduce(u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files of Linux 6.1 for a VM with two vCPUs, as `kvm_create_vm_debugfs()` and
    /// `kvm_arch_create_vcpu_debugfs()` make them, with the values of those that are read.
    const TREE: [(&str, &str); 13] = [
        ("4711-12/halt_poll_success_ns", "1000"),
        ("4711-12/halt_poll_fail_ns", "230"),
        ("4711-12/halt_wait_ns", "777777"),
        ("4711-12/halt_attempted_poll", "9"),
        ("4711-12/exits", "123456"),
        ("4711-12/vcpu0/pid", "4715"),
        ("4711-12/vcpu0/guest_mode", "1"),
        ("4711-12/vcpu0/tsc-offset", "18446744073709551615"),
        ("4711-12/vcpu0/lapic_timer_advance_ns", "1000"),
        ("4711-12/vcpu1/pid", "4716"),
        ("47-12/halt_poll_success_ns", "5"),
        ("47-12/halt_poll_fail_ns", "0"),
        ("halt_poll_success_ns", "1005"),
    ];

    #[test]
    fn the_files_of_a_vm_are_read_and_no_others() {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in TREE {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, format!("{text}\n")).unwrap();
        }
        assert_eq!(polled_ns(root.path(), 4711), Some(1230));
        assert_eq!(polled_ns(root.path(), 47), Some(5));
        assert_eq!(polled_ns(root.path(), 4), None);
        assert_eq!(polled_ns(Path::new("/nonexistent"), 4711), None);
    }
}
