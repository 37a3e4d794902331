//! Determines the length of a cell's measurement, and the number of VMs.

use std::time::Duration;

use vm_harness::machine;

use crate::catalogue::Scale;

/// The length of measurements at a scale.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds of a measurement.
    pub seconds: u32,
    /// Number of runs in an experiment that compares runs.
    pub runs: u32,
    /// MiB of the smallest disk that is created.
    pub disk: u64,
    /// Number of VMs.
    pub vms: usize,
}

/// Seconds of warm-up before a measurement.
pub(super) const WARM_UP: u32 = 1;

/// Memory of a VM, MiB: that of the guest and that of QEMU.
const VM_MIB: u64 = 512 + 256;

/// Virtual CPUs for each CPU that still make progress if all of them are busy.
const MAX_VCPUS_PER_CPU: usize = 8;

/// Returns the number of VMs that fit into three quarters of the memory and onto the CPUs: an even number, at least 6,
/// which some experiments need, and at most 40, for which the channels are made.
fn fitting(available_mib: u64, cpus: usize) -> usize {
    let by_memory = usize::try_from(available_mib / 4 * 3 / VM_MIB).unwrap_or(usize::MAX);
    by_memory
        .min(cpus.saturating_mul(MAX_VCPUS_PER_CPU))
        .clamp(6, 40)
        / 2
        * 2
}

impl Pace {
    /// Returns the pace of a scale; at the largest, as many VMs run as fit on this host.
    #[must_use]
    pub fn of(scale: Scale) -> Self {
        match scale {
            Scale::Ci => Self {
                seconds: 1,
                runs: 3,
                disk: 64,
                vms: 4,
            },
            Scale::Default => Self {
                seconds: 2,
                runs: 5,
                disk: 256,
                vms: 4,
            },
            Scale::Full => Self {
                seconds: 20,
                runs: 10,
                disk: 1024,
                vms: fitting(machine::available_mib(), machine::cpus()),
            },
        }
    }

    /// Returns the time before the measurement of threads, and its length. The measurement begins shortly after the
    /// warm-up, because the command in the guest needs time to start.
    pub(super) const fn watched(&self) -> (Duration, Duration) {
        let before = Duration::from_millis(WARM_UP as u64 * 1000 + 200);
        (before, Duration::from_secs(self.seconds as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_vms_as_memory_and_cpus_allow() {
        for (mib, cpus, vms) in [
            (24_000, 2, 16),
            (24_000, 64, 22),
            (4_000, 64, 6),
            (1_000_000, 64, 40),
        ] {
            assert_eq!(fitting(mib, cpus), vms, "{mib} MiB, {cpus} CPUs");
        }
    }
}
