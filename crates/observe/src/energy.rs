//! Energy: measured if the processor has counters (RAPL, through the kernel's powercap), or else
//! modelled.
//!
//! The observer charges a VM for its guest and for its backend, each by its share of the CPU time that
//! the host could have used: `power * CPU-seconds / (CPUs * seconds)`. It charges the remainder, which
//! includes idle power, to no VM. So all charges and the remainder add up to the host's power.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The folder with the kernel's RAPL counters.
pub const POWERCAP: &str = "/sys/class/powercap";

/// The source of a power figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING-KEBAB-CASE")]
pub enum Provenance {
    /// The processor's own counters.
    Measured,
    /// The product of CPU time and the power of a busy CPU, which the user can set.
    Modelled,
}

impl Provenance {
    /// Returns the label that a report shows beside each figure.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Measured => "MEASURED",
            Self::Modelled => "MODELLED",
        }
    }
}

/// A counter of consumed energy: of one processor package, or of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Zone {
    file: PathBuf,
    /// The counter wraps to zero after this many microjoules.
    range: u64,
}

impl Zone {
    fn is_by_memory(&self) -> bool {
        let folder = self.file.parent().and_then(Path::file_name);
        folder.is_some_and(|name| name.to_string_lossy().starts_with("intel-rapl-mmio"))
    }
}

/// The energy counters of this host.
#[derive(Clone, Debug, Default)]
pub struct Meter(Vec<Zone>);

/// The values of all counters, in the meter's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading(Vec<u64>);

impl Meter {
    /// Finds the counters of the packages and of their memory below `powercap`. Other zones inside a
    /// package are part of the package, and `psys` contains the packages, so the meter uses neither.
    /// Intel's client processors have two counters for each package: `intel-rapl:N`, read from
    /// registers (MSRs), and `intel-rapl-mmio:N`, read from memory (MMIO). The meter uses the second
    /// only if the first does not exist.
    #[must_use]
    pub fn find(powercap: &Path) -> Self {
        let entries = fs::read_dir(powercap).into_iter().flatten().flatten();
        let mut zones: Vec<Zone> = entries.filter_map(|entry| zone(&entry.path())).collect();
        if zones.iter().any(|zone| !zone.is_by_memory()) {
            zones.retain(|zone| !zone.is_by_memory());
        }
        zones.sort_by(|a, b| a.file.cmp(&b.file));
        Self(zones)
    }

    /// Returns whether the host has energy counters.
    #[must_use]
    pub fn exists(&self) -> bool {
        !self.0.is_empty()
    }

    /// Reads all counters. Returns `None` if there are none, or if this process may not read one of
    /// them (only root may).
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        let values: Option<Vec<u64>> = self.0.iter().map(|zone| number(&zone.file)).collect();
        values.filter(|values| !values.is_empty()).map(Reading)
    }

    /// Returns the average power in watts between two readings, `time` apart.
    #[must_use]
    pub fn watts(&self, earlier: &Reading, later: &Reading, time: Duration) -> Option<f64> {
        let mut joules = 0.0;
        for ((zone, before), after) in self.0.iter().zip(&earlier.0).zip(&later.0) {
            let micro = match after.checked_sub(*before) {
                Some(difference) => difference,
                None => zone.range.checked_sub(*before)?.checked_add(*after)?,
            };
            joules += micro as f64 / 1e6;
        }
        (!time.is_zero()).then(|| joules / time.as_secs_f64())
    }
}

fn zone(folder: &Path) -> Option<Zone> {
    let name = fs::read_to_string(folder.join("name")).ok()?;
    let name = name.trim();
    if !(name.starts_with("package-") || name == "dram") {
        return None;
    }
    Some(Zone {
        file: folder.join("energy_uj"),
        range: number(&folder.join("max_energy_range_uj"))?,
    })
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(zones: &[(&str, &str, u64)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (folder, name, energy) in zones {
            let folder = root.path().join(folder);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("name"), format!("{name}\n")).unwrap();
            fs::write(folder.join("energy_uj"), format!("{energy}\n")).unwrap();
            fs::write(folder.join("max_energy_range_uj"), "1000000\n").unwrap();
        }
        root
    }

    #[test]
    fn packages_and_memory_count_once() {
        let root = host(&[
            ("intel-rapl:0", "package-0", 100),
            ("intel-rapl:0:0", "core", 60),
            ("intel-rapl:0:1", "dram", 7),
            ("intel-rapl:1", "psys", 900),
        ]);
        let meter = Meter::find(root.path());
        assert_eq!(meter.read(), Some(Reading(vec![100, 7])));
    }

    #[test]
    fn a_package_by_registers_and_by_memory_counts_once() {
        // The zones of a notebook of 2019 (Linux 5.10), with a folder for each control type.
        let root = host(&[
            ("intel-rapl", "", 0),
            ("intel-rapl-mmio", "", 0),
            ("intel-rapl:0", "package-0", 100),
            ("intel-rapl:0:0", "core", 60),
            ("intel-rapl:0:1", "uncore", 1),
            ("intel-rapl:0:2", "dram", 7),
            ("intel-rapl:1", "psys", 900),
            ("intel-rapl-mmio:0", "package-0", 101),
            ("intel-rapl-mmio:0:0", "dram", 8),
        ]);
        let meter = Meter::find(root.path());
        assert_eq!(meter.read(), Some(Reading(vec![100, 7])));
        let root = host(&[("intel-rapl-mmio:0", "package-0", 101)]);
        assert_eq!(Meter::find(root.path()).read(), Some(Reading(vec![101])));
    }

    #[test]
    fn a_counter_that_wrapped_goes_on() {
        let root = host(&[("intel-rapl:0", "package-0", 0)]);
        let meter = Meter::find(root.path());
        let second = Duration::from_secs(1);
        let watts =
            |before, after| meter.watts(&Reading(vec![before]), &Reading(vec![after]), second);
        assert_eq!(watts(100_000, 600_000), Some(0.5));
        assert_eq!(watts(900_000, 400_000), Some(0.5));
        let reading = Reading(vec![1]);
        assert_eq!(meter.watts(&reading, &reading, Duration::ZERO), None);
    }

    #[test]
    fn without_counters_nothing_is_read() {
        let meter = Meter::find(Path::new("/nonexistent"));
        assert!(!meter.exists());
        assert_eq!(meter.read(), None);
    }
}
