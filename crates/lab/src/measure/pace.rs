//! How long a cell is measured, and on how many VMs.

use std::time::Duration;

use vm_harness::machine;

use crate::catalogue::Scale;

/// How long a cell is measured.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds that count.
    pub seconds: u32,
    /// Runs of an experiment that compares runs.
    pub runs: u32,
    /// MiB of the smallest disk that is created.
    pub disk: u64,
    /// VMs.
    pub vms: usize,
}

/// Seconds before those that count.
pub(super) const WARM_UP: u32 = 1;

/// What a VM of the lab takes, MiB: its own memory, and QEMU.
const VM_MIB: u64 = 512 + 256;

/// Virtual CPUs for each CPU that still get somewhere when all of them are busy.
const CROWD: usize = 8;

/// VMs that fit into three quarters of so much memory and onto so many CPUs: an even number, of which
/// some experiments need six and no channel is made for more than forty.
fn fitting(available_mib: u64, cpus: usize) -> usize {
    let by_memory = usize::try_from(available_mib / 4 * 3 / VM_MIB).unwrap_or(usize::MAX);
    by_memory.min(cpus.saturating_mul(CROWD)).clamp(6, 40) / 2 * 2
}

impl Pace {
    /// That of a scale; the largest has as many VMs as fit here.
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

    /// Time before, and time of, the watch over threads. A command needs a moment to start.
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
