//! The Debian packages, made of what was built for the tests, and installed in a clean root.
//!
//! Needs root and what the lab needs. The clean root is made once and kept below the target folder.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::root;
use lab::host::{command, run};
use lab::image::clean_root;

fn home() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned()
}

/// The guests' agent; the VMs' tests keep one, too.
fn agent() -> PathBuf {
    let mut build = command(root().join("scripts/agent"));
    build.args(["--profile", "dev"]);
    build.env("CARGO_TARGET_DIR", home().join("vms/agent"));
    PathBuf::from(run(build).unwrap().trim())
}

/// What a person does after the installation; each line must succeed.
const TRY: &str = r#"
set -eux
mount -t proc proc /proc
dpkg --install /packages/*.deb
dpkg --audit
vicinity --version
# What is missing is QEMU.
vicinity doctor >/doctor || true
grep 'MISSING  qemu' /doctor
grep 'To serve VMs' /doctor
MANPAGER=cat man vicinity-port-add | grep 'Add one to a network'
bash -n /usr/share/bash-completion/completions/vicinity
grep -x 'PACKAGE_VERSION="0.1.0"' /usr/src/vicinity-direct-0.1.0/dkms.conf
vicinity-agent --help 2>&1 | grep usage
test -e /usr/include/myriexpress.h
getent group kvm
vicinity serve --config /etc/vicinity/vicinity.toml --log error &
until vicinity network list; do sleep 0.1; done
vicinity port add default shop
vicinity port list | grep shop
kill $!
wait $!
grep 'vm = "shop"' /etc/vicinity/vicinity.toml
# What the operator wrote outlives an upgrade and a removal, not a purge.
dpkg --install /packages/*.deb
grep 'vm = "shop"' /etc/vicinity/vicinity.toml
dpkg --remove vicinity
grep 'vm = "shop"' /etc/vicinity/vicinity.toml
dpkg --purge vicinity vicinity-guest libmyriexpress
test ! -e /etc/vicinity
test ! -e /run/vicinity
# The reader of manual pages keeps its own.
find / -xdev -path /packages -prune -o -path /proc -prune -o -name '*vicinity*' -print >/left
! grep -v '^/var/cache/man' /left || exit 1
"#;

#[test]
fn the_packages_install_in_a_clean_root_and_leave_nothing() {
    let home = home().join("package");
    let clean = clean_root(&["man-db"], &home).unwrap();
    let folder = tempfile::tempdir_in(&home).unwrap();
    let place = folder.path().join("root");
    std::fs::create_dir(&place).unwrap();
    let mut unpack = command("tar");
    unpack.arg("--extract").arg("--file").arg(clean);
    unpack.arg("--directory").arg(&place);
    run(unpack).unwrap();
    let mut make = command(root().join("scripts/deb"));
    make.arg(place.join("packages"));
    make.arg(env!("CARGO_BIN_EXE_vicinity")).arg(agent());
    make.arg(common::archive());
    make.env("DPKG_DEB_COMPRESSOR_TYPE", "none");
    let made = run(make).unwrap();
    assert_eq!(made.lines().count(), 3, "{made}");
    // A namespace of its own: nothing that is mounted or started there outlives it.
    let mut inside = command("unshare");
    inside.args([
        "--mount",
        "--pid",
        "--net",
        "--fork",
        "--kill-child",
        "chroot",
    ]);
    inside.arg(&place).args(["/bin/bash", "-c", TRY]);
    inside.env_clear();
    inside.env(
        "PATH",
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    );
    inside
        .env("HOME", "/root")
        .env("DEBIAN_FRONTEND", "noninteractive");
    inside.stdin(Stdio::null());
    let output = inside.output().unwrap();
    let [said, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{said}\n{errors}");
}
