//! The host as a whole.

use std::fs;
use std::path::Path;

use crate::text::{number_after, value_of};

/// Totals of all CPUs since boot, in ticks, from `/proc/stat` (`proc_stat(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Doing anything at all.
    pub busy: u64,
    /// Interrupts and soft interrupts: network work that is on nobody's account.
    pub interrupts: u64,
    /// Taken by a hypervisor below this host.
    pub stolen: u64,
    /// Everything, idle time included.
    pub all: u64,
}

impl CpuTime {
    /// From the text of `/proc/stat`.
    #[must_use]
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user time.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = *ticks.get(..8)? else {
            return None;
        };
        let sum = |ticks: &[u64]| {
            ticks
                .iter()
                .fold(0, |sum: u64, one| sum.saturating_add(*one))
        };
        let busy = sum(&[user, nice, system, irq, softirq]);
        Some(Self {
            busy,
            interrupts: sum(&[irq, softirq]),
            stolen: steal,
            all: sum(&[busy, steal, idle, iowait]),
        })
    }

    /// What came since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            interrupts: self.interrupts.saturating_sub(earlier.interrupts),
            stolen: self.stolen.saturating_sub(earlier.stolen),
            all: self.all.saturating_sub(earlier.all),
        }
    }
}

/// Share of the last ten seconds in which some task waited for a CPU, in percent, from
/// `/proc/pressure/cpu` (the kernel's `psi.rst`).
#[must_use]
pub fn parse_pressure(text: &str) -> Option<f64> {
    let some: String = text.lines().find(|line| line.starts_with("some "))?.into();
    value_of(&some, "avg10")
}

/// The pressure on the CPUs below a `/proc`; `None` where the kernel does not measure it.
pub(crate) fn pressure(proc: &Path) -> Option<f64> {
    parse_pressure(&fs::read_to_string(proc.join("pressure/cpu")).ok()?)
}

/// Bytes of memory that are there and that are free for programs, below a `/proc`.
pub(crate) fn memory(proc: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let bytes = |key| number_after::<u64>(&text, key)?.checked_mul(1024);
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn guest_time_is_not_counted_twice() {
        let text = "cpu  100 20 30 500 40 5 6 7 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let time = CpuTime {
            busy: 161,
            interrupts: 11,
            stolen: 7,
            all: 708,
        };
        assert_eq!(CpuTime::parse(text), Some(time));
        assert_eq!(CpuTime::parse("cpu  1 2 3\n"), None);
    }

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=0.19 avg60=12.47 avg300=19.66 total=449934643\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(0.19));
        assert_eq!(parse_pressure("full avg10=1.00\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(cpu )?(.|\n){0,200}") {
            let _ = (CpuTime::parse(&text), parse_pressure(&text));
        }
    }
}
