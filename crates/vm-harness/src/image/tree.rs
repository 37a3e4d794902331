//! Makes an initramfs from an unpacked tree.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cpio;

/// The guest's first process.
pub(super) const INIT: &str = include_str!("init.sh");

/// What [`INIT`] mounts, in this order.
const MOUNTS: &str = "\
proc /proc proc defaults 0 0
sysfs /sys sysfs defaults 0 0
dev /dev devtmpfs defaults 0 0
devpts /dev/pts devpts x-mount.mkdir 0 0
tmpfs /dev/shm tmpfs x-mount.mkdir,mode=1777 0 0
tmpfs /run tmpfs mode=755 0 0
";

/// Parts of the packages that no guest command needs, as paths from the root without a leading slash.
const EXCLUDED_PATHS: [&str; 27] = [
    "bin/udevadm",
    "boot",
    "dev",
    "etc/apt",
    "etc/hostname",
    "etc/resolv.conf",
    "lib/modules",
    "lib/udev",
    "usr/bin/udevadm",
    "usr/lib/klibc",
    "usr/lib/modules",
    "usr/lib/udev",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/common-licenses",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/initramfs-tools",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl",
    "var/cache",
    "var/lib",
];

/// How the paths of more such parts begin: Perl, whose modules are among [`EXCLUDED_PATHS`].
const EXCLUDED_BEGINNINGS: [&str; 2] = ["usr/bin/perl", "usr/lib/x86_64-linux-gnu/libperl.so"];

/// Writes the initramfs: the files of `root`, the modules' files, and a few of the harness, with the names of the modules
/// that the guest loads.
pub(super) fn write(
    root: &Path,
    modules: &[String],
    files: &[PathBuf],
    to: &Path,
) -> std::io::Result<()> {
    let mut paths = Vec::new();
    walk(root, root, &mut paths)?;
    for file in files {
        let above = file.ancestors();
        paths.extend(
            above
                .filter(|p| !p.as_os_str().is_empty())
                .map(Path::to_owned),
        );
    }
    // In byte order a folder comes before its contents. The kernel requires this order.
    paths.sort();
    paths.dedup();
    let mut writer = cpio::Writer::new(BufWriter::new(File::create(to)?));
    for path in &paths {
        writer.copy(path.as_os_str().as_bytes(), &root.join(path))?;
    }
    for name in ["dev", "lab"] {
        writer.entry(name.as_bytes(), cpio::folder(0o755), b"")?;
    }
    writer.entry(b"init", cpio::file(0o755), INIT.as_bytes())?;
    writer.entry(b"etc/fstab", cpio::file(0o644), MOUNTS.as_bytes())?;
    let list = modules.join(" ") + "\n";
    writer.entry(b"lab/modules", cpio::file(0o644), list.as_bytes())?;
    if !paths.iter().any(|path| path.ends_with("bin/sh")) {
        writer.entry(b"bin/sh", cpio::LINK, b"bash")?;
    }
    let users = fs::read(root.join("usr/share/base-passwd/passwd.master"))?;
    writer.entry(b"etc/passwd", cpio::file(0o644), &users)?;
    let groups = fs::read(root.join("usr/share/base-passwd/group.master"))?;
    writer.entry(b"etc/group", cpio::file(0o644), &groups)?;
    writer.finish().map(drop)
}

fn walk(root: &Path, folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let inside = path.strip_prefix(root).unwrap_or(&path).to_owned();
        let text = inside.as_os_str().as_bytes();
        if EXCLUDED_PATHS.iter().any(|out| text == out.as_bytes())
            || EXCLUDED_BEGINNINGS
                .iter()
                .any(|out| text.starts_with(out.as_bytes()))
        {
            continue;
        }
        found.push(inside);
        if entry.file_type()?.is_dir() {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}

/// Removes the files in a folder below `root` that are not among these paths from the root.
pub(super) fn retain(folder: &Path, root: &Path, paths: &[PathBuf]) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            retain(&path, root, paths)?;
        } else if path
            .strip_prefix(root)
            .is_ok_and(|inside| !paths.iter().any(|it| it == inside))
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
