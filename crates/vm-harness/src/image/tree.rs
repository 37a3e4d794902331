//! Makes an initramfs from an unpacked tree.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::cpio;

/// The guest's first process.
pub(super) const INIT: &str = include_str!("init.sh");

/// Parts of the packages that no guest command needs, as paths from the root without a leading slash.
const EXCLUDED_PATHS: [&str; 22] = [
    "boot",
    "dev",
    "etc/apt",
    "etc/hostname",
    "etc/resolv.conf",
    "lib/modules",
    "lib/udev",
    "usr/lib/modules",
    "usr/lib/udev",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/doc",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl",
    "var/cache",
    "var/lib",
];

/// Writes the initramfs: the files of `root`, the modules' files, and a few of the harness.
pub(super) fn write(root: &Path, modules: &[PathBuf], to: &Path) -> std::io::Result<()> {
    let mut paths = Vec::new();
    walk(root, root, &mut paths)?;
    for module in modules {
        let above = module.ancestors();
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
    let list: String = modules
        .iter()
        .map(|m| format!("/{}\n", m.display()))
        .collect();
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
        if EXCLUDED_PATHS.iter().any(|out| inside == Path::new(out)) {
            continue;
        }
        found.push(inside);
        if entry.file_type()?.is_dir() {
            walk(root, &path, found)?;
        }
    }
    Ok(())
}
