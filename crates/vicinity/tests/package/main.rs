//! The Debian packages, made from the program built for the tests, and installed in a clean Debian
//! that systemd has booted.
//!
//! [`restart`] tests everything else that systemd does with the daemon.
//!
//! Needs root and the programs that the lab needs. The test creates the clean root once and keeps
//! it below the target folder.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

#[path = "../common/mod.rs"]
mod common;
mod restart;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::root;
use vm_harness::host::{command, run};
use vm_harness::image::clean_root;

fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
}

/// Commands of a user after the installation. Each line must succeed.
const TRY: &str = r#"
set -eux
export HOME=/root DEBIAN_FRONTEND=noninteractive
dpkg --install /packages/[lv]*.deb
dpkg --audit
vicinity --version
# What is missing is QEMU.
vicinity doctor >/doctor || true
grep 'MISSING  qemu' /doctor
grep 'serves 1 network' /doctor
MANPAGER=cat man vicinity-port-add | grep 'Add a port to a network'
bash -n /usr/share/bash-completion/completions/vicinity
for module in direct wake; do
    grep -x 'PACKAGE_VERSION="0.1.0"' /usr/src/vicinity-$module-0.1.0/dkms.conf
done
vicinity-agent --help 2>&1 | grep usage
# The library is found by the loader's own name for the folder, and changes nothing without the agent.
vicinity-run cat /proc/self/maps | grep -c libvicinity-sockets.so
systemd-analyze verify vicinity-sockets.service
test -e /usr/include/myriexpress.h
ldconfig -p | grep libmyriexpress.so

systemctl is-active vicinity.socket vicinity.service
test "$(stat --format %G:%a /run/vicinity/default)" = kvm:750
test "$(stat --format %U:%a /run/vicinity/control.sock)" = root:600
vicinity port add default shop
vicinity port list | grep shop
systemctl reload vicinity
# Who asks starts it.
systemctl stop vicinity.service
! systemctl is-active vicinity.service
vicinity port list | grep shop
systemctl is-active vicinity.service
# It is started again when it is killed.
restarted() {
    until test "$(systemctl show --property NRestarts --value vicinity)" = "$1"; do sleep 0.1; done
}
kill -KILL "$(systemctl show --property MainPID --value vicinity)"
restarted 1
vicinity port list | grep shop

# What the operator wrote outlives an upgrade and a removal, not a purge.
dpkg --install /packages/[lv]*.deb
systemctl is-active vicinity.service
grep 'vm = "shop"' /etc/vicinity/vicinity.toml
dpkg --remove vicinity
grep 'vm = "shop"' /etc/vicinity/vicinity.toml
dpkg --purge vicinity vicinity-guest libfabric-vicinity libmyriexpress
test ! -e /etc/vicinity
test ! -e /run/vicinity
# The reader of manual pages keeps its own.
find / -xdev -path /packages -prune -o -name '*vicinity*' -print >/left
! grep -v '^/var/cache/man' /left || exit 1
"#;

#[test]
fn the_packages_install_in_a_clean_root_and_leave_nothing() {
    let home = home().join("package");
    let clean = clean_root(&["man-db", "systemd", "systemd-sysv"], &home).unwrap();
    let folder = tempfile::tempdir_in(&home).unwrap();
    let place = folder.path().join("root");
    std::fs::create_dir(&place).unwrap();
    let mut unpack = command("tar");
    unpack.arg("--extract").arg("--file").arg(clean);
    unpack.arg("--directory").arg(&place);
    run(unpack).unwrap();
    let mut make = command(root().join("scripts/deb"));
    make.arg(place.join("packages"));
    make.arg(env!("CARGO_BIN_EXE_vicinity"))
        .arg(common::agent());
    make.arg(common::archive());
    make.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let made = run(make).unwrap();
    // The clean root has neither Open MPI nor libfabric, so their packages are only looked at.
    let mut optional = vec![];
    if common::open_mpi::missing().is_none() {
        optional.push("/openmpi3/mca_btl_vicinity.so");
    }
    if common::libfabric::missing().is_none() {
        optional.push("/libfabric/libvicinity-fi.so");
    }
    let packages: Vec<&str> = made.lines().collect();
    assert_eq!(packages.len(), 3 + optional.len(), "{made}");
    for (package, file) in packages.iter().skip(3).zip(optional) {
        let mut list = command("dpkg-deb");
        list.arg("--contents").arg(package);
        let files = run(list).unwrap();
        assert!(files.contains(file), "{files}");
        let others = ["pml", "mpool", "osc", "coll"].map(|kind| format!("mca_{kind}_vicinity.so"));
        let has_all = others.iter().all(|other| files.contains(other.as_str()));
        assert!(!file.contains("mca_btl") || has_all, "{files}");
    }
    std::fs::write(place.join("try"), TRY).unwrap();
    let mut boot = command("unshare");
    boot.arg("--mount");
    boot.arg(root().join("crates/vicinity/tests/package/boot.sh"));
    boot.arg(&place).stdin(Stdio::null());
    let output = boot.output().unwrap();
    let said = std::fs::read_to_string(place.join("said")).unwrap_or_default();
    assert!(output.status.success(), "{said}\n{output:?}");
}
