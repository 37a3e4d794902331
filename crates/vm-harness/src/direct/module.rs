//! Builds the kernel module of the direct channel for the guests' kernel.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};
use crate::host;
use crate::scope::RunFolder;

/// The names and texts of its sources, which are in `guest/direct`.
const SOURCES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/direct_sources.rs"));

/// Tools that the build needs, beside the kernel's headers.
const TOOLS: [&str; 3] = ["make", "gcc", "strip"];

/// Returns the reason why the module cannot be built on this host for a guest of the host's release, if there is one.
#[must_use]
pub fn missing() -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = |tool: &str| std::env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    let mut missing: Vec<&str> = TOOLS.into_iter().filter(|tool| !there(tool)).collect();
    if !has_headers() {
        missing.push("linux-headers-cloud-amd64");
    }
    let absent = !missing.is_empty();
    absent.then(|| {
        format!(
            "the direct channel's module cannot be built: {} missing; run `scripts/setup lab` as root",
            missing.join(", ")
        )
    })
}

/// Whether the headers of a kernel for guests are installed.
fn has_headers() -> bool {
    let entries = fs::read_dir("/lib/modules").into_iter().flatten().flatten();
    let mut kernels = entries.filter(|entry| entry.path().join("build").exists());
    kernels.any(|entry| entry.file_name().to_string_lossy().contains("-cloud-"))
}

/// Builds the module for the kernel of this release, or takes it from `cache`.
///
/// # Errors
/// The kernel's headers or a compiler are missing.
pub(super) fn build(release: &str, cache: &Path) -> Result<PathBuf> {
    let file = cache.join(format!("vicinity_direct-{}.ko", key(release)));
    if file.exists() {
        return Ok(file);
    }
    if !Path::new("/lib/modules")
        .join(release)
        .join("build")
        .exists()
    {
        return Err(Error::Host(format!(
            "no headers of the guests' kernel {release}; run `scripts/setup lab` as root"
        )));
    }
    let folder = RunFolder::new()?;
    for (name, text) in SOURCES {
        let path = folder.path().join(name);
        fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    }
    let mut make = host::command("make");
    make.arg("--directory").arg(folder.path());
    make.arg(format!("RELEASE={release}"));
    host::run(make)?;
    // The build writes next to the final place, under a name that no other process uses.
    let unique = folder.path().file_name().unwrap_or_default();
    let part = cache.join(unique).with_extension("ko");
    let mut strip = host::command("strip");
    strip.arg("--strip-debug").arg("-o").arg(&part);
    strip.arg(folder.path().join("vicinity_direct.ko"));
    host::run(strip)?;
    fs::rename(&part, &file).context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// Returns the key of a build: a hash of all its inputs.
fn key(release: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(release);
    for (name, text) in SOURCES {
        hash.update(name);
        hash.update(text);
    }
    let digest = hash.finalize();
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_module_has_its_source() {
        let text = |name: &str| {
            let found = SOURCES.iter().find(|source| source.0 == name);
            found.unwrap_or_else(|| panic!("no {name}")).1
        };
        let objects = text("Kbuild").split_whitespace();
        let objects = objects.filter_map(|word| word.strip_suffix(".o"));
        let mut parts = 0;
        for object in objects.filter(|object| *object != "vicinity_direct") {
            assert!(!text(&format!("{object}.c")).is_empty());
            parts += 1;
        }
        assert!(parts > 5 && !text("Makefile").is_empty() && !text("direct.h").is_empty());
    }

    #[test]
    fn another_kernel_is_another_build() {
        assert_ne!(key("6.1.0"), key("6.12.0"));
    }
}
