//! The files of a run: its manifest, and its samples in the order of measurement.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::catalogue::Scale;
use super::cell_filter::CellFilter;
use super::sample::Sample;
use vm_harness::error::{Context, Error, Result};
use vm_harness::machine::Machine;

/// Description of a run and its environment: `manifest.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The host.
    pub machine: Machine,
    /// Ids of the experiments.
    pub experiments: Vec<String>,
    /// The selected levels, by factor; all levels of factors that are not in the map.
    #[serde(default, skip_serializing_if = "CellFilter::is_empty")]
    pub only: CellFilter,
    /// The scale of the run.
    pub scale: Scale,
    /// Seed of the cells' order.
    pub seed: u64,
    /// Budget of the measurements, in seconds.
    pub budget_s: f64,
    /// The accelerator of the VMs; empty until the run has booted them.
    pub accelerator: String,
    /// The channels, one line for each.
    pub channels: Vec<String>,
    /// The abilities of each version of control groups on this host.
    #[serde(default)]
    pub control_groups: String,
    /// How switches between VMs are counted on this host, or why they are not.
    #[serde(default)]
    pub switches: String,
    /// Kernel of the guests.
    pub guest_kernel: String,
    /// Key of the guest image: its packages and their versions.
    pub image: String,
    /// CPU flags of the host.
    pub cpu_flags: String,
    /// Mitigations of the host's kernel, one line for each.
    pub mitigations: Vec<String>,
}

/// Reads a run's manifest.
///
/// # Errors
/// There is no run in `output`.
pub fn load(output: &Path) -> Result<Manifest> {
    let path = output.join("manifest.json");
    let text = fs::read_to_string(&path)
        .context(|| format!("read {} (is there a run?)", path.display()))?;
    serde_json::from_str(&text).map_err(|_| Error::unreadable("a run's manifest", &text))
}

/// Reads a run's samples. If a crash cut the last line short, this function leaves it out.
///
/// # Errors
/// The file cannot be read.
pub fn samples(output: &Path) -> Result<Vec<Sample>> {
    let path = output.join("samples.ndjson");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).context(|| format!("read {}", path.display()))?;
    Ok(text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}

pub(super) fn save(output: &Path, manifest: &Manifest) -> Result<()> {
    let text = serde_json::to_string_pretty(manifest).context(|| "describe the run".to_owned())?;
    // The file is renamed into place, so that a crash leaves the old or the new manifest.
    let (path, part) = (
        output.join("manifest.json"),
        output.join("manifest.json.part"),
    );
    fs::write(&part, text + "\n")
        .and_then(|()| fs::rename(&part, &path))
        .context(|| format!("write {}", path.display()))
}

/// Returns the value of the first line of a file with this key.
pub(super) fn line_of(path: &str, key: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .find(|(name, _)| name.trim() == key)
        .map_or_else(String::new, |(_, value)| value.trim().to_owned())
}

/// Returns the mitigations of the host's kernel.
pub(super) fn mitigations() -> Vec<String> {
    let entries = fs::read_dir("/sys/devices/system/cpu/vulnerabilities")
        .into_iter()
        .flatten()
        .flatten();
    let describe = |entry: fs::DirEntry| {
        Some(format!(
            "{}: {}",
            entry.file_name().to_str()?,
            fs::read_to_string(entry.path()).ok()?.trim()
        ))
    };
    let mut lines: Vec<String> = entries.filter_map(describe).collect();
    lines.sort();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Cell;

    #[test]
    fn a_line_cut_short_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let sample = Sample {
            sweep: "udp".into(),
            block: 1,
            cell: Cell::default(),
            values: Default::default(),
            failed: Some("x".into()),
            line_ns: None,
            at: 0.0,
        };
        let line = serde_json::to_string(&sample).unwrap();
        fs::write(
            folder.path().join("samples.ndjson"),
            format!("{line}\n{}", &line[..20]),
        )
        .unwrap();
        assert_eq!(samples(folder.path()).unwrap(), [sample]);
    }
}
