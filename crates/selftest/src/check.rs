//! A check, and what it needs of the host.

use std::time::Duration;

use vm_harness::error::Result;

use crate::outcome::Outcome;

/// A requirement of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requirement {
    /// A root user, tools for guest images, and QEMU: what every VM needs.
    Vms,
    /// The processor runs the guests.
    Kvm,
    /// OVMF, the UEFI firmware for VMs.
    Ovmf,
    /// A compiler and kernel headers, to build the guests' kernel modules.
    Modules,
    /// Memory that is free or can be freed, MiB.
    MemoryMib(u64),
    /// A NIC that is bound to `vfio-pci`.
    VfioNic,
    /// KVM's statistics in debugfs.
    KvmStatistics,
}

/// A check of a subject `T`, which stays from one check to the next.
#[derive(Debug)]
pub struct Check<T> {
    /// The name for `--only` and for the report.
    pub id: &'static str,
    /// The title.
    pub title: &'static str,
    /// What the check shows.
    pub shows: &'static str,
    /// What it needs.
    pub needs: &'static [Requirement],
    /// How long it usually takes under TCG, the slower accelerator. It does not start if less time is left.
    pub usual: Duration,
    /// When it is ended.
    pub limit: Duration,
    /// Runs it.
    pub run: fn(&mut T) -> Result<Outcome>,
}

/// What checks look at.
pub trait Subject {
    /// Returns the reason why the host does not have this, if it does not.
    ///
    /// # Errors
    /// A signal interrupted the search.
    fn missing(&mut self, need: Requirement) -> Result<Option<String>>;

    /// Ends everything that a failed check may have left in an unknown state.
    fn reset(&mut self);
}
