//! Reads the host's CPU time, pressure and memory.

use std::fs;
use std::path::Path;

use crate::text::{number_after, value_of};

/// Totals of all CPUs since boot, in ticks, from `/proc/stat` (`proc_stat(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Busy ticks.
    pub busy: u64,
    /// Ticks in interrupts and soft interrupts: network work that the observer charges to no VM.
    pub interrupts: u64,
    /// Ticks that a hypervisor below this host used for other VMs.
    pub stolen: u64,
    /// All ticks, including idle time.
    pub all: u64,
}

impl CpuTime {
    /// Parses the text of `/proc/stat`.
    #[must_use]
    pub fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> = line
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        // The fields are: user nice system idle iowait irq softirq steal. User time includes guest
        // time.
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

    /// Returns the difference to an earlier reading.
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

/// The host is short of memory if some task waited for memory for more than this share of the last ten
/// seconds, in percent.
const MAX_PRESSURE: f64 = 1.0;

/// The host is short of memory if less than one part in this many of its memory is available.
const MIN_AVAILABLE: u64 = 20;

/// Parses `/proc/pressure/cpu` or `memory` (the kernel's `psi.rst`). Returns the share of the last ten
/// seconds in which some task waited, in percent.
#[must_use]
pub fn parse_pressure(text: &str) -> Option<f64> {
    let some: String = text.lines().find(|line| line.starts_with("some "))?.into();
    value_of(&some, "avg10")
}

/// Returns whether the host is short of memory: in the last ten seconds some task waited for memory, or
/// little memory is available. Returns false if the kernel provides neither figure.
#[must_use]
pub fn is_short_of_memory(proc: &Path) -> bool {
    let text = fs::read_to_string(proc.join("pressure/memory")).unwrap_or_default();
    let waited = parse_pressure(&text).is_some_and(|percent| percent > MAX_PRESSURE);
    let little = |(total, available): (u64, u64)| available < total / MIN_AVAILABLE;
    waited || memory(proc).is_some_and(little)
}

/// Returns the pressure on the CPUs from the `/proc` at `proc`, or `None` if the kernel does not
/// measure it.
pub(crate) fn pressure(proc: &Path) -> Option<f64> {
    parse_pressure(&fs::read_to_string(proc.join("pressure/cpu")).ok()?)
}

/// Returns the bytes of memory of the host, and the bytes available to programs, from the `/proc` at
/// `proc`.
pub(crate) fn memory(proc: &Path) -> Option<(u64, u64)> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let bytes = |key| number_after::<u64>(&text, key)?.checked_mul(1024);
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;
    use crate::text::changed;

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
    fn a_host_is_short_of_memory_by_available_memory_or_by_pressure() {
        let folder = tempfile::tempdir().unwrap();
        let short = |percent: &str, available: u32| {
            fs::create_dir_all(folder.path().join("pressure")).unwrap();
            let text = format!("some avg10={percent} avg60=0.00 avg300=0.00 total=0\n");
            fs::write(folder.path().join("pressure/memory"), text).unwrap();
            let text = format!("MemTotal: 1000 kB\nMemAvailable: {available} kB\n");
            fs::write(folder.path().join("meminfo"), text).unwrap();
            is_short_of_memory(folder.path())
        };
        assert!(!short("0.00", 500) && !short("1.00", 51));
        assert!(short("1.01", 500) && short("0.00", 49));
        assert!(!is_short_of_memory(&folder.path().join("nowhere")));
    }

    #[test]
    fn pressure_is_read() {
        let text = "some avg10=0.19 avg60=12.47 avg300=19.66 total=449934643\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
        assert_eq!(parse_pressure(text), Some(0.19));
        assert_eq!(parse_pressure("full avg10=1.00\n"), None);
    }

    #[test]
    fn any_text_is_read_or_refused() {
        let (times, pressures) = (Cell::new(0), Cell::new(0));
        let reached = |count: &Cell<u32>| count.set(count.get() + 1);
        let stat = "cpu  100 20 30 500 40 5 6 7 90 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let pressure = "some avg10=0.19 avg60=12.47 avg300=19.66 total=449934643\n";
        proptest!(|(stat in changed(stat), pressure in changed(pressure))| {
            if let Some(time) = CpuTime::parse(&stat) {
                reached(&times);
                prop_assert!(time.busy <= time.all && time.stolen <= time.all);
            }
            if parse_pressure(&pressure).is_some() {
                reached(&pressures);
            }
        });
        assert!(
            times.get() > 100 && pressures.get() > 100,
            "{times:?} {pressures:?}"
        );
    }
}
