//! Makes an image from a recipe: computes the key of the inputs, unpacks the packages, and writes the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::manifest::Manifest;
use super::recipe::Recipe;
use super::sources::Sources;
use super::tree;
use super::vmlinux;
use crate::error::{Context, Error, Result};
use crate::host;

/// Version of the builder. Raise this number when a change of the builder makes a different image from the same
/// inputs.
const FORMAT: u32 = 2;

/// Everything an image depends on.
#[derive(Debug, Serialize)]
pub(super) struct Inputs {
    format: u32,
    init: &'static str,
    codename: String,
    packages: Vec<String>,
    modules: Vec<String>,
    /// The packages that apt would install now.
    versions: String,
}

impl Inputs {
    pub(super) fn of(recipe: &Recipe) -> Result<Self> {
        let mut packages = recipe.packages.clone();
        packages.push(recipe.kernel.clone());
        packages.sort();
        packages.dedup();
        let versions = versions(&packages);
        Ok(Self {
            format: FORMAT,
            init: tree::INIT,
            codename: codename()?,
            packages,
            modules: recipe.modules.clone(),
            versions,
        })
    }

    pub(super) fn key(&self) -> Result<String> {
        let text = serde_json::to_vec(self).context(|| "describe the image".to_owned())?;
        let hash = Sha256::digest(text);
        Ok(hash
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    /// Makes `scratch/image`.
    pub(super) fn make(&self, scratch: &Path) -> Result<()> {
        let root = scratch.join("root");
        self.unpack(scratch, &root)?;
        let release = kernel_release(&root)?;
        let files = self.module_files(&root, &release)?;
        let image = scratch.join("image");
        fs::create_dir(&image).context(|| format!("make {}", image.display()))?;
        let kernel = root.join("boot").join(format!("vmlinuz-{release}"));
        let packed = fs::read(&kernel).context(|| format!("read {}", kernel.display()))?;
        fs::write(image.join("vmlinuz"), &packed).context(|| "write the kernel".to_owned())?;
        if let Some(unpacked) = vmlinux::unpack(&packed) {
            fs::write(image.join("vmlinux"), unpacked)
                .context(|| "write the unpacked kernel".to_owned())?;
        }
        tree::write(&root, &self.modules, &files, &image.join("initrd.cpio"))
            .context(|| "write the initramfs".to_owned())?;
        let manifest = Manifest {
            kernel_release: release,
            packages: unpacked_versions(&root)?,
        };
        let text = serde_json::to_vec_pretty(&manifest).context(|| "the manifest".to_owned())?;
        fs::write(image.join("manifest.json"), text).context(|| "write the manifest".to_owned())
    }

    fn unpack(&self, scratch: &Path, root: &Path) -> Result<()> {
        let options = [
            "--variant=extract",
            "--format=directory",
            "--skip=cleanup/apt/cache",
        ];
        let options = options.map(str::to_owned);
        bootstrap(
            scratch,
            &self.codename,
            &options,
            &self.packages.join(","),
            root,
        )
    }

    /// Returns the files of the modules, of those that they depend on, and of their index, as paths below the root.
    /// Removes all other modules, because the larger index of all would be unpacked and read in each boot.
    fn module_files(&self, root: &Path, release: &str) -> Result<Vec<PathBuf>> {
        let inside = |tool: &str| {
            let mut command = host::command("chroot");
            command.arg(root).arg(tool);
            command
        };
        let index = || {
            let mut depmod = inside("depmod");
            depmod.args(["-a", release]);
            host::run(depmod)
        };
        index()?;
        let mut files = Vec::new();
        for module in &self.modules {
            let mut modprobe = inside("modprobe");
            modprobe.args(["-S", release, "--show-depends", module]);
            for line in host::run(modprobe)?.lines() {
                let file = line.strip_prefix("insmod ").map(str::trim);
                // A module that is built into the kernel ("builtin") has no file.
                if let Some(file) = file {
                    let file = real_path(root, file)?;
                    if !files.contains(&file) {
                        files.push(file);
                    }
                }
            }
        }
        let home = real_path(root, &format!("/lib/modules/{release}"))?;
        let remove = || tree::retain(&root.join(&home).join("kernel"), root, &files);
        remove().context(|| "remove modules".to_owned())?;
        index()?;
        let made = fs::read_dir(root.join(&home)).context(|| "read the index".to_owned())?;
        let names = made.flatten().map(|entry| home.join(entry.file_name()));
        files.extend(names.filter(|name| name.extension().is_some_and(|it| it == "bin")));
        Ok(files)
    }
}

/// Returns the versions of these packages that apt would install now. A process asks apt once for the same packages:
/// where apt keeps no cache of its own, as in Debian's container images, an answer takes a second.
fn versions(packages: &[String]) -> String {
    static KNOWN: Mutex<BTreeMap<Vec<String>, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(versions) = known.get(packages) {
        return versions.clone();
    }
    let mut show = host::command("apt-cache");
    show.args(["show", "--no-all-versions"]).args(packages);
    let shown = match host::run(show) {
        Ok(shown) => shown,
        Err(error) => {
            tracing::debug!("package versions are not known before the build: {error}");
            return String::new();
        }
    };
    let version = |line: &&str| line.starts_with("Package: ") || line.starts_with("Version: ");
    let versions = shown.lines().filter(version).collect::<Vec<_>>().join("\n");
    known.insert(packages.to_vec(), versions.clone());
    versions
}

/// Runs `mmdebstrap`, which makes `target` of these packages from the archive that the host's apt uses.
pub(super) fn bootstrap(
    scratch: &Path,
    codename: &str,
    options: &[String],
    packages: &str,
    target: &Path,
) -> Result<()> {
    let sources = Sources::of_host(codename)?;
    let mut command = host::command("mmdebstrap");
    command.arg("--quiet").args(options);
    command.arg(format!("--include={packages}"));
    for option in proxies() {
        command.arg(format!("--aptopt={option}"));
    }
    command.arg(codename).arg(target);
    for (name, text) in [
        ("lines.list", sources.lines),
        ("debian.sources", sources.stanzas),
    ] {
        if !text.is_empty() {
            let file = scratch.join(name);
            fs::write(&file, text).context(|| format!("write {}", file.display()))?;
            command.arg(file);
        }
    }
    host::run(command).map(drop)
}

/// Returns the code name of the host's Debian release.
pub(super) fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.map(|name| name.trim_matches('"').to_owned());
    name.ok_or_else(|| Error::Host("guest images are built on Debian only; this host's /etc/os-release has no VERSION_CODENAME".to_owned()))
}

/// Returns the host's apt proxies, which `mmdebstrap` does not read by itself.
fn proxies() -> Vec<String> {
    let mut dump = host::command("apt-config");
    dump.args(["dump", "Acquire"]);
    let text = host::run(dump).unwrap_or_default();
    let lines = text.lines().filter(|line| line.contains("Proxy"));
    lines.map(str::to_owned).collect()
}

fn kernel_release(root: &Path) -> Result<String> {
    let boot = fs::read_dir(root.join("boot")).context(|| "look for the kernel".to_owned())?;
    let names = boot
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    let mut releases = names.filter_map(|n| n.strip_prefix("vmlinuz-").map(str::to_owned));
    releases
        .next()
        .ok_or_else(|| Error::Host("the kernel's package has no kernel in /boot".to_owned()))
}

/// Names and versions of the package files that apt fetched.
fn unpacked_versions(root: &Path) -> Result<BTreeMap<String, String>> {
    let folder = root.join("var/cache/apt/archives");
    let entries = fs::read_dir(&folder).context(|| format!("read {}", folder.display()))?;
    let names = entries
        .flatten()
        .filter_map(|e| e.file_name().into_string().ok());
    // NAME_VERSION_ARCHITECTURE.deb, where apt writes a colon as %3a.
    let split = |name: String| {
        let mut parts = name.strip_suffix(".deb")?.split('_');
        Some((parts.next()?.to_owned(), parts.next()?.replace("%3a", ":")))
    };
    Ok(names.filter_map(split).collect())
}

/// Resolves the symbolic links in a path of the guest (`/lib` may link to `usr/lib`), relative to
/// the root: the kernel creates the initramfs's folders only from real names.
fn real_path(root: &Path, inside: &str) -> Result<PathBuf> {
    let path = root.join(inside.trim_start_matches('/'));
    let real = |path: &Path| fs::canonicalize(path).context(|| format!("find {}", path.display()));
    let (root, path) = (real(root)?, real(&path)?);
    let outside = || Error::Host(format!("{} is outside the image", path.display()));
    path.strip_prefix(&root)
        .map(Path::to_owned)
        .map_err(|_| outside())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_is_in_the_key() {
        let key = |recipe: &Recipe| Inputs::of(recipe).unwrap().key().unwrap();
        let plain = key(&Recipe::default());
        assert_eq!(plain, key(&Recipe::default()));
        assert_ne!(plain, key(&Recipe::default().package("curl")));
        assert_ne!(plain, key(&Recipe::default().module("uio_pci_generic")));
        assert_ne!(plain, key(&Recipe::default().kernel("linux-image-amd64")));
        let mut updated = Inputs::of(&Recipe::default()).unwrap();
        updated.versions.push_str("Version: 9999");
        assert_ne!(plain, updated.key().unwrap());
    }

    #[test]
    fn versions_come_from_the_package_files_names() {
        let folder = crate::scope::RunFolder::new().unwrap();
        let archives = folder.path().join("var/cache/apt/archives");
        fs::create_dir_all(&archives).unwrap();
        for name in ["a-b_1%3a2.3-4+deb12u1_amd64.deb", "lock"] {
            fs::write(archives.join(name), "").unwrap();
        }
        let found = unpacked_versions(folder.path()).unwrap();
        let want = [("a-b".to_owned(), "1:2.3-4+deb12u1".to_owned())];
        assert_eq!(found, BTreeMap::from(want));
    }
}
