//! Programs that must be installed.

use std::fs;
use std::path::Path;

use super::check::{Check, Purpose};
use crate::commands::qemu_version::{self, OLDEST};

/// Folders that are searched for programs in addition to `PATH`, because an ordinary user's `PATH`
/// has no `sbin`.
const EXTRA: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/lib/openvswitch-switch-dpdk"];

/// Programs of the demo, and the package that has each.
const DEMO: [(&str, &str); 5] = [
    ("mmdebstrap", "mmdebstrap"),
    ("ip", "iproute2"),
    ("setpriv", "util-linux"),
    ("socat", "socat"),
    ("tmux", "tmux"),
];

/// Programs of the benchmark, and the package that has each.
const BENCH: [(&str, &str); 2] = [
    ("dpdk-testpmd", "dpdk-dev"),
    ("ovs-vswitchd-dpdk", "openvswitch-switch-dpdk"),
];

/// Checks that QEMU is installed and new enough.
pub(super) fn qemu() -> Check {
    let program = qemu_version::PROGRAM;
    match qemu_version::version(program) {
        Some(version) if version >= OLDEST => Check::ok("qemu", format!("{program} {version}")),
        Some(version) => {
            let found = format!(
                "{program} {version} is too old; Vicinity needs {OLDEST}, because older versions crash when an \
                    emulated guest uses a vhost-user NIC"
            );
            Check::missing("qemu", found, qemu_remedy())
        }
        None => Check::missing("qemu", format!("{program} is not installed"), qemu_remedy()),
    }
}

fn qemu_remedy() -> String {
    let package = match std::env::consts::ARCH {
        "x86_64" => "qemu-system-x86",
        "aarch64" => "qemu-system-arm",
        _ => "qemu-system",
    };
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    if release.contains("VERSION_CODENAME=bookworm") {
        return format!(
            "add bookworm-backports to apt's sources, then as root: \
             `apt-get install -t bookworm-backports {package}`"
        );
    }
    format!(
        "as root: `apt-get install {package}`; on other systems, install QEMU {OLDEST} or newer"
    )
}

pub(super) fn demo() -> Vec<Check> {
    DEMO.map(|(program, package)| installed(program, package).needed_for(Purpose::Demo))
        .into()
}

pub(super) fn bench() -> Vec<Check> {
    let mut checks: Vec<Check> = BENCH
        .map(|(program, package)| installed(program, package))
        .into();
    checks.push(vhost_net());
    let checks = checks.into_iter();
    checks
        .map(|check| check.needed_for(Purpose::Bench))
        .collect()
}

fn installed(program: &'static str, package: &str) -> Check {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let extra = EXTRA.iter().map(|folder| Path::new(folder).to_owned());
    let found = std::env::split_paths(&path)
        .chain(extra)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file());
    match found {
        Some(file) => Check::ok(program, file.display().to_string()),
        None => {
            let remedy = format!("as root: `apt-get install {package}`");
            Check::missing(program, "not installed", remedy)
        }
    }
}

fn vhost_net() -> Check {
    let name = "/dev/vhost-net";
    if Path::new(name).exists() {
        return Check::ok(name, "exists: the benchmark measures the bridge with it");
    }
    let found = "does not exist: the benchmark measures the bridge with QEMU's own virtio-net";
    Check::warn(
        name,
        found,
        "as root: `modprobe vhost_net`, if the kernel has it",
    )
}
