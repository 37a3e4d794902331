//! The check of the accelerator. It boots a kernel, because `/dev/kvm` exists also on machines on
//! which no guest gets past its firmware.

use std::fs;
use std::path::{Path, PathBuf};

use vm_harness::accel::{self, Accel};

use super::check::Check;
use crate::commands::demo;

const NAME: &str = "accelerator";

const SLOW: &str = "guests are emulated (TCG), 10 to 20 times slower";

const REMEDY: &str = "enable hardware virtualisation in the machine's firmware; in a VM, enable nested \
    virtualisation on its host";

/// Boots a kernel under KVM, if `/dev/kvm` exists.
pub(super) fn probe() -> Check {
    if !Path::new("/dev/kvm").exists() {
        let remedy = format!("`modprobe kvm_intel` or `modprobe kvm_amd` as root; {REMEDY}");
        return Check::warn(NAME, format!("no /dev/kvm: {SLOW}"), remedy);
    }
    let Some(kernel) = kernel() else {
        return Check::warn(
            NAME,
            "not tested: there is no readable kernel in /boot to boot",
            "run `vicinity demo`, which downloads a kernel and tests KVM, or as root: `apt-get install \
                linux-image-cloud-amd64`",
        );
    };
    match accel::detect(&kernel) {
        Ok(Accel::Kvm) => Check::ok(NAME, "KVM boots a kernel"),
        Ok(Accel::Tcg) => {
            let found = format!("/dev/kvm exists, but a kernel does not boot under KVM: {SLOW}");
            Check::warn(NAME, found, REMEDY)
        }
        Err(error) => Check::warn(
            NAME,
            format!("not tested: {error}"),
            "correct the cause in the message",
        ),
    }
}

/// Returns the path of a readable kernel: the host's, or that of a guest image of the demo.
fn kernel() -> Option<PathBuf> {
    let images = entries(&Path::new(demo::FOLDER).join("lab"));
    let images = images.map(|image| image.join("vmlinuz"));
    let named = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with("vmlinuz")
    };
    let mut kernels: Vec<PathBuf> = images
        .chain(entries(Path::new("/boot")))
        .filter(named)
        .filter(|path| fs::File::open(path).is_ok())
        .collect();
    kernels.sort();
    kernels.pop()
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path())
}
