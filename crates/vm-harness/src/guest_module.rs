//! Builds the guests' kernel modules for their kernel.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::error::{Context, Error, Result};
use crate::host;
use crate::scope::RunFolder;

/// Names and texts of the sources in a folder.
type Sources = &'static [(&'static str, &'static str)];

const DIRECT: Sources = include!(concat!(env!("OUT_DIR"), "/direct_sources.rs"));
const WAKE: Sources = include!(concat!(env!("OUT_DIR"), "/wake_sources.rs"));

/// A kernel module for guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestModule {
    /// `vicinity_direct`, of the direct channel; its sources are in `guest/direct`.
    Direct,
    /// `vicinity_wake`, of the message plane; its sources are in `guest/wake`.
    Wake,
}

impl GuestModule {
    /// Returns the module's name, as `lsmod` shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "vicinity_direct",
            Self::Wake => "vicinity_wake",
        }
    }

    const fn sources(self) -> Sources {
        match self {
            Self::Direct => DIRECT,
            Self::Wake => WAKE,
        }
    }

    /// Builds the module for the kernel of this release, or takes it from `cache`.
    ///
    /// # Errors
    /// The kernel's headers or a compiler are missing.
    pub fn build(self, release: &str, cache: &Path) -> Result<PathBuf> {
        let file = cache.join(format!("{}-{}.ko", self.name(), self.key(release)));
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
        for (name, text) in self.sources() {
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
        strip.arg(folder.path().join(format!("{}.ko", self.name())));
        host::run(strip)?;
        fs::rename(&part, &file).context(|| format!("write {}", file.display()))?;
        Ok(file)
    }

    /// Returns the key of a build: a hash of all its inputs.
    fn key(self, release: &str) -> String {
        let mut hash = Sha256::new();
        hash.update(release);
        for (name, text) in self.sources() {
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
}

/// Tools that the build needs, beside the kernel's headers.
const TOOLS: [&str; 3] = ["make", "gcc", "strip"];

/// Returns the reason why the modules cannot be built on this host for a guest of the host's release, if there is one.
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
            "the guests' kernel modules cannot be built: {} missing; run `scripts/setup lab` as root",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_of_the_module_has_its_source() {
        let text = |name: &str| {
            let found = DIRECT.iter().find(|source| source.0 == name);
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
        let key = |module: GuestModule, release| module.key(release);
        assert_ne!(
            key(GuestModule::Direct, "6.1.0"),
            key(GuestModule::Direct, "6.12.0")
        );
        assert_ne!(
            key(GuestModule::Direct, "6.1.0"),
            key(GuestModule::Wake, "6.1.0")
        );
    }
}
