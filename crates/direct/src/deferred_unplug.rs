//! When the views of VMs that have ended are unplugged.
//!
//! QEMU deletes a memory slot for each view that it unplugs, and KVM then drops all page tables of the VM
//! (`KVM_X86_QUIRK_SLOT_ZAP_ALL` in the kernel's `Documentation/virt/kvm/api.rst`). The VM faults each page in
//! again. So the views of VMs that end soon after each other, as on a shutdown of a group, are unplugged together:
//! the page tables that the first deletion drops are not filled again between two deletions.
//!
//! The view of a VM that leaves while it runs is unplugged at once, because its memory is not for the group any
//! more.

use std::time::{Duration, Instant};

/// The time for which the views of a VM that has ended wait for others. The memory of that VM is in use so long.
const DELAY: Duration = Duration::from_secs(1);

/// The views that wait.
#[derive(Debug, Default)]
pub(crate) struct DeferredUnplug {
    /// When they are unplugged.
    due: Option<Instant>,
}

impl DeferredUnplug {
    /// Records that a VM has ended.
    pub(crate) fn add(&mut self, now: Instant) {
        self.due.get_or_insert(now + DELAY);
    }

    /// Returns whether views of VMs that have ended stay plugged in for now.
    pub(crate) fn is_waiting(&mut self, now: Instant) -> bool {
        self.due = self.due.filter(|due| now < *due);
        self.due.is_some()
    }
}
